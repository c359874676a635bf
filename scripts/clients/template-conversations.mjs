// Conversations of every kind that a chat template meets. They are read as JSON, so that 2.0 stays a float.
import { parseExact } from '../../dist/files/exact-json.js';

const tools = `[{"type":"function","function":{"name":"weather","description":"Tells the weather: \\"now\\" <b> é","parameters":
  {"type":"object","properties":{"city":{"type":"string","description":"A city"},"days":{"type":"integer","minimum":0,"maximum":12345678901234567890},
  "scale":{"type":"number","default":2.0,"enum":[1.5,2.0,1e22]}},"required":["city"]}}}]`;
const called = `{"role":"assistant","content":"","tool_calls":[{"id":"call_1","type":"function","function":
  {"name":"weather","arguments":{"city":"Åre","scale":2.0,"days":12345678901234567890,"deep":{"a":[1,2.50,true,null],"b":{}}}}}]}`;
const calledWithText = `{"role":"assistant","content":"I look.\\n","tool_calls":[{"id":"call12345","type":"function","function":
  {"name":"weather","arguments":"{\\"city\\": \\"Oslo\\"}"}}]}`;
const code = '"\\n    def f(x):\\n\\treturn x + 1\\n\\n"';

const SOURCE = `[
 {"name":"plain","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello!"}]},
 {"name":"prompt","add_generation_prompt":true,"messages":[{"role":"user","content":"  What is 2 + 3?\\n"}]},
 {"name":"system","add_generation_prompt":true,"messages":[{"role":"system","content":"Be brief. 'Really' & \\"so\\" <x>"},{"role":"user","content":"Hi"}]},
 {"name":"empty system","messages":[{"role":"system","content":""},{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]},
 {"name":"turns","add_generation_prompt":true,"messages":[{"role":"user","content":"One"},{"role":"assistant","content":" two "},{"role":"user","content":"three\\r\\nfour"},{"role":"assistant","content":"<think>\\n  so\\n</think>\\n\\nfive"},{"role":"user","content":"six 🙂"}]},
 {"name":"tools","add_generation_prompt":true,"tools":${tools},"messages":[{"role":"system","content":"S"},{"role":"user","content":"Weather?"}]},
 {"name":"tool call","tools":${tools},"messages":[{"role":"user","content":"Weather?"},${called}]},
 {"name":"tool result","add_generation_prompt":true,"tools":${tools},"messages":[{"role":"user","content":"Weather?"},${called},{"role":"tool","name":"weather","tool_call_id":"call_1","content":"{\\"t\\": 2.0}"}]},
 {"name":"two tool results","tools":${tools},"messages":[{"role":"user","content":"W?"},${calledWithText},{"role":"tool","name":"weather","tool_call_id":"call12345","content":"20"},{"role":"tool","name":"weather","tool_call_id":"call12345","content":"21\\n"},{"role":"assistant","content":"Warm."}]},
 {"name":"reasoning","messages":[{"role":"user","content":"2+3?"},{"role":"assistant","reasoning_content":"\\n  let me\\n    see\\n","content":"\\n    5\\n"}]},
 {"name":"thinking","messages":[{"role":"user","content":"2+3?"},{"role":"assistant","thinking":"hm","content":"5"},{"role":"user","content":"4?"},{"role":"assistant","reasoning":"um","content":"4"}]},
 {"name":"code","messages":[{"role":"user","content":${code}},{"role":"assistant","content":${code}}]},
 {"name":"continued","continue_final_message":true,"messages":[{"role":"user","content":"Say"},{"role":"assistant","content":"Well, "}]},
 {"name":"no thinking","add_generation_prompt":true,"variables":{"enable_thinking":false,"thinking":false},"messages":[{"role":"user","content":"Hi"}]},
 {"name":"parts","messages":[{"role":"user","content":[{"type":"text","text":"Look "},{"type":"text","text":"here"}]},{"role":"assistant","content":[{"type":"text","text":"  seen"}]}]},
 {"name":"none","messages":[{"role":"user","content":"Hi","name":null},{"role":"assistant","content":"","tool_calls":null,"reasoning_content":null}]}
]`;

export const CONVERSATIONS = parseExact(SOURCE);
