// Gold answers rewritten: `equal` ones mean the same by construction, the others do not.

/** @returns {{ name: string, equal: boolean, text: string }[]} every rewriting that applies to a LaTeX answer and changes its text */
export function rewritten(gold) {
  const kind = kindOf(gold);
  return REWRITINGS.flatMap(([name, equal, kinds, rewrite]) => {
    if (kinds !== 'any' && !kinds.split(' ').includes(kind)) return [];
    const text = rewrite(gold);
    return text === undefined || (text === gold && name !== 'as it is') ? [] : [{ name, equal, text }];
  });
}

const INTEGER = /^-?\d+$/;
const FRACTION = /^(-?)\\d?frac\{(\d+)\}\{(\d+)\}$/;
const RADICAL = /^(\d*) ?\\sqrt\{?(\d+)\}?$/;

/** What an answer is, as far as rewritings ask. */
function kindOf(gold) {
  if (INTEGER.test(gold)) return 'integer';
  if (FRACTION.test(gold)) return 'fraction';
  if (RADICAL.test(gold)) return 'radical';
  if (/^\\text\{\(?[A-F]\)?\}$/.test(gold)) return 'choice';
  if (/^\\text\{[A-Za-z ]+\}$/.test(gold)) return 'words';
  if (/\\!|begin|\\text|mbox|_|\\%|circ|\\in|<|>|\\le|\\ge|\\pm|=/.test(gold)) return 'other';
  if (/^(?:\\left ?)?[([].*\\infty|^(?:\\left ?)?\[.*,.*[)\]]$|\\cup|^(?:\\left ?)?\(.*,.*\]$/.test(gold))
    return 'interval';
  if (/^(?:\\left ?)?\([^()]*,[^()]*\)$/.test(gold)) return 'tuple';
  if (/^[^()[\]{}]+(?:, ?[^()[\]{}]+)+$/.test(gold) && !/\d,\d{3}/.test(gold)) return 'list';
  if (/^\d*\.\d+$/.test(gold)) return 'decimal';
  if (/^[-+*/^(){}\d\\a-zA-Z. ]+$/.test(gold)) return 'expression';
  return 'other';
}

const NUMBERS = 'integer fraction radical decimal';
const SCALARS = `${NUMBERS} expression`;
const fraction = (change) => (gold) => {
  const [, sign, over, under] = FRACTION.exec(gold);
  return change(sign, Number(over), Number(under));
};
const radical = (change) => (gold) => {
  const [, factor, inside] = RADICAL.exec(gold);
  return change(factor === '' ? 1 : Number(factor), Number(inside));
};
const items = (change) => (gold) => change(gold.split(/, ?/)).join(', ');
const parts = (change) => (gold) => {
  const [, open, inside, close] = /^(\\left ?[([]|[([])(.*?)((?:\\right ?)?[)\]])$/.exec(gold) ?? [];
  return inside === undefined ? undefined : `${open}${change(inside.split(/, ?/)).join(', ')}${close}`;
};
const value = (change) => (gold) => String(change(BigInt(gold)));
/** Up to the last digit that differs from 0 everywhere. */
const isFinite10 = (under) => /^1?$/.test(String(under / gcd(under, 10 ** 15)));
const gcd = (a, b) => (b === 0 ? a : gcd(b, a % b));
const grouped = (mark) => (gold) =>
  /^-?\d{4,}$/.test(gold) ? gold.replace(/\B(?=(\d{3})+$)/g, mark) : undefined;
const twice = (gold) => `\\frac{2(${gold})}{2}`;

/** Name, whether it is equal, which kinds it applies to, and the new text; undefined where it does not apply. */
const REWRITINGS = [
  ['as it is', true, 'any', (g) => g],
  ['display style', true, 'any', (g) => `\\displaystyle ${g}`],
  ['dfrac', true, 'any', (g) => g.replaceAll('\\frac', '\\dfrac')],
  [
    'left, right',
    true,
    'any',
    (g) =>
      /[()[\]]/.test(g) && !/\\left|\\sqrt\[|\\text|begin/.test(g)
        ? g.replace(/[([]/g, '\\left$&').replace(/[)\]]/g, '\\right$&')
        : undefined,
  ],
  ['spaces', true, SCALARS, (g) => g.replace(/([-+])/g, ' $1 ').replace(/([{}])/g, ' $1 ')],
  ['full stop', true, 'any', (g) => `${g}.`],
  ['colour', true, 'any', (g) => `\\textcolor{blue}{${g}}`],
  ['bold', true, 'integer', (g) => `\\mathbf{${g}}`],
  ['named', true, `${NUMBERS} list`, (g) => `x = ${g}`],
  ['twice over two', true, SCALARS, twice],
  ['plus and minus one', true, SCALARS, (g) => `(${g}) + 1 - 1`],
  ['one-sided equation', true, 'integer', (g) => `${BigInt(g) - 3n} + 3 = ${g}`],
  ['slash', true, 'fraction', fraction((s, a, b) => `${s}${a}/${b}`)],
  ['expanded fraction', true, 'fraction', fraction((s, a, b) => `${s}\\frac{${6 * a}}{${6 * b}}`)],
  ['over', true, 'fraction', fraction((s, a, b) => `${s}{${a} \\over ${b}}`)],
  ['sign inside', true, 'fraction', fraction((s, a, b) => (s ? `\\frac{-${a}}{${b}}` : undefined))],
  ['printed float', true, 'fraction', fraction((s, a, b) => `${s}${a / b}`)],
  ['printed root', true, 'radical', radical((k, m) => String(k * Math.sqrt(m)))],
  ['into the root', true, 'radical', radical((k, m) => (k > 1 ? `\\sqrt{${k * k * m}}` : undefined))],
  ['half power', true, 'radical', radical((k, m) => `${k} \\cdot ${m}^{1/2}`)],
  ['trailing zeros', true, 'integer', (g) => `${g}.00`],
  ['scientific', true, 'integer', (g) => (g !== '0' ? `${g} \\times 10^{0}` : undefined)],
  ['comma', true, 'integer', grouped(',')],
  ['{,}', true, 'integer', grouped('{,}')],
  [',\\!', true, 'integer', grouped(',\\!')],
  ['thin space', true, 'integer', grouped('\\,')],
  ['unit', true, 'integer', (g) => `${g}\\text{ cm}`],
  ['dollars', true, 'integer', (g) => (g.startsWith('-') ? undefined : `\\$${g}`)],
  ['set braces', true, 'list', (g) => `\\{${g}\\}`],
  ['other order', true, 'list', items((list) => list.toReversed())],
  ['and', true, 'list', (g) => g.replace(/, ?(?=[^,]*$)/, ' \\text{ and } ')],
  ['entries doubled', true, 'tuple', parts((list) => list.map(twice))],
  ['membership', true, 'interval', (g) => `x \\in ${g}`],
  ['words bare', true, 'words', (g) => g.replace(/^\\text\{(.*)\}$/, '$1')],
  [
    'capitals',
    true,
    'words',
    (g) =>
      g.replace(
        /\{(.)/,
        (_, first) => `{${first === first.toLowerCase() ? first.toUpperCase() : first.toLowerCase()}`,
      ),
  ],
  ['choice in brackets', true, 'choice', (g) => `(${/[A-F]/.exec(g)[0]})`],

  ['one more', false, 'integer', value((n) => n + 1n)],
  [
    'other sign',
    false,
    NUMBERS,
    (g) => (/^0*$/.test(g) ? undefined : g.startsWith('-') ? g.slice(1) : `-${g}`),
  ],
  ['ten times', false, 'integer', value((n) => n * 10n)],
  [
    'a digit less',
    false,
    'integer',
    (g) => (/\d\d$/.test(g) && !/^-?0/.test(g) ? g.slice(0, -1) : undefined),
  ],
  ['digits swapped', false, 'integer', (g) => g.replace(/(\d)(\d)$/, '$2$1')],
  ['a half more', false, 'integer', (g) => `${g}.5`],
  ['contradiction', false, 'integer', (g) => `${g} = ${BigInt(g) + 1n}`],
  ['split by a comma', false, 'integer', (g) => (/^\d{2,3}$/.test(g) ? g.replace(/.$/, ', $&') : undefined)],
  ['upside down', false, 'fraction', fraction((s, a, b) => (a === b ? undefined : `${s}\\frac{${b}}{${a}}`))],
  ['numerator alone', false, 'fraction', fraction((s, a) => `${s}${a}`)],
  ['denominator + 1', false, 'fraction', fraction((s, a, b) => `${s}\\frac{${a}}{${b + 1}}`)],
  [
    'two decimals',
    false,
    'fraction',
    fraction((s, a, b) => (isFinite10(b) ? undefined : `${s}${(a / b).toFixed(2)}`)),
  ],
  ['mixed number', false, 'fraction', fraction((s, a, b) => `${s}1\\frac{${a}}{${b}}`)],
  ['no root', false, 'radical', radical((k, m) => String(k * m))],
  ['another root', false, 'radical', radical((k, m) => `${k}\\sqrt{${m + 1}}`)],
  [
    'two decimals of a root',
    false,
    'radical',
    radical((k, m) => (Number.isInteger(Math.sqrt(m)) ? undefined : (k * Math.sqrt(m)).toFixed(2))),
  ],
  ['plus one', false, SCALARS, (g) => `${g} + 1`],
  [
    'another variable',
    false,
    'expression',
    (g) =>
      /(?<![\\a-zA-Z])x(?![a-zA-Z])/.test(g) ? g.replace(/(?<![\\a-zA-Z])x(?![a-zA-Z])/g, 'w') : undefined,
  ],
  ['minus for plus', false, 'expression', (g) => (/\S ?\+/.test(g) ? g.replace('+', '-') : undefined)],
  [
    'without π',
    false,
    'expression',
    (g) => (/\\pi/.test(g) && !/^-?\\pi$/.test(g) ? g.replaceAll('\\pi', '1') : undefined),
  ],
  ['an item less', false, 'list', items((list) => list.slice(1))],
  ['an item more', false, 'list', items((list) => [...list, '1234'])],
  ['an item changed', false, 'list', items((list) => ['1234', ...list.slice(1)])],
  [
    'entries swapped',
    false,
    'tuple',
    parts((list) => (list[0] === list.at(-1) ? list.map((each) => `${each}+1`) : list.toReversed())),
  ],
  ['an entry changed', false, 'tuple', parts((list) => [`${list[0]}+1`, ...list.slice(1)])],
  [
    'other end',
    false,
    'interval',
    (g) =>
      /\d ?(?:\\right ?)?\)$/.test(g)
        ? g.replace(/\)$/, ']')
        : /\]$/.test(g)
          ? g.replace(/\]$/, ')')
          : undefined,
  ],
  ['end moved', false, 'interval', (g) => g.replace(/\d+/, (n) => String(Number(n) + 1))],
  ['other words', false, 'words', () => '\\text{another}'],
  ['other letter', false, 'choice', (g) => `\\text{(${/A/.test(g) ? 'B' : 'A'})}`],
  ['without base', false, 'other', (g) => (/^\d+_\{?\d+\}?$/.test(g) ? g.replace(/_.*/, '') : undefined)],
  ['other base', false, 'other', (g) => (/^\d+_\{?\d+\}?$/.test(g) ? g.replace(/_.*/, '_{11}') : undefined)],
  [
    'matrix entry',
    false,
    'other',
    (g) => (/begin\{pmatrix\}/.test(g) ? g.replace(/\d+/, (n) => String(Number(n) + 1)) : undefined),
  ],
];

/** Name and a reply with the answer as chat models lay it out in Markdown. */
export const REPLIES = [
  ['heading, display', (a) => `We add them up.\n\n### Final Answer\n\n$$${a}$$`],
  ['heading, brackets', (a) => `## Final Answer\n\\[x = ${a}\\]`],
  ['heading of four', (a) => `#### Step 1: Add 3 and 4\n\nThe sum is 7.\n\n#### Final Answer\n\n$${a}$`],
  ['heading of the answer', (a) => `### $${a}$`],
  ['heading in bold', (a) => `### **Final Answer:**\n\n**$${a}$**`],
  ['heading with a number', (a) => `### 3. Final Answer\n\n$${a}$`],
  ['heading with a dash', (a) => `### Final Answer — $${a}$`],
  ['heading of the result', (a) => `## Result\n\n$${a}$`],
  ['heading underlined', (a) => `Final Answer\n============\n\n$${a}$`],
  ['bold above it', (a) => `**Final Answer**\n\n$${a}$`],
  ['bullet', (a) => `### Final Answer\n\n- $${a}$`],
  ['star', (a) => `**Answer**\n* $${a}$`],
  ['quote', (a) => `> ### Final Answer\n>\n> $${a}$`],
  ['fence', (a) => `### Final Answer\n\n\`\`\`\n$${a}$\n\`\`\``],
  ['rule', (a) => `We add them up.\n\n---\n\n### Answer\n\n$${a}$\n\n---`],
  ['box below a heading', (a) => `### Final Answer\n\n\\[\\boxed{${a}}\\]`],
  ['check below it', (a) => `### Final Answer\n\n$${a}$\n\n### Check\n\nAll is as it was asked.`],
];

const commas = (n) => (Math.abs(n) >= 1000 ? n.toLocaleString('en-US') : undefined);

/** Name, whether it is equal, and a completion with that answer for a whole number. */
export const REWRITINGS_IN_PROSE = [
  ['The answer is n.', true, (n) => `So we add them up. The answer is ${n}.`],
  ['#### n', true, (n) => `So we add 3 and 4.\n#### ${n}`],
  ['boxed', true, (n) => `So the total is $\\boxed{${n}}$.`],
  ['boxed with words', true, (n) => `\\boxed{\\text{The answer is } ${n}}`],
  ['last number', true, (n) => `She starts with 2 and then has ${n} in all.`],
  ['with commas', true, (n) => commas(n) && `The answer is ${commas(n)}.`],
  ['with spaces', true, (n) => commas(n) && `The answer is ${commas(n).replaceAll(',', ' ')}.`],
  ['dollars', true, (n) => `The answer is $${n}.`],
  ['dollars and cents', true, (n) => `The answer is $${n}.00.`],
  ['a decimal', true, (n) => `The answer is ${n}.0.`],
  ['with a unit', true, (n) => `The answer is ${n} apples.`],
  ['bold', true, (n) => `The answer is **${n}**.`],
  ['backticks', true, (n) => `The answer is \`${n}\`.`],
  ['Answer: n', true, (n) => `We are done.\n\nAnswer: ${n}`],
  ['an equation', true, (n) => `The answer is ${n - 3} + 3 = ${n}.`],
  ['boxed equation', true, (n) => `So \\boxed{${n - 3} + 3 = ${n}}`],
  ['formula', true, (n) => `Therefore $x = ${n}$.`],
  ['display', true, (n) => `Therefore \\[ ${n - 3} + 3 = ${n}. \\]`],
  ['derivation after it', true, (n) => `The answer is ${n}, which is ${n - 3} + 3.`],
  ['derivation in brackets', true, (n) => `The answer is ${n} (${n - 3} + 3).`],
  ['because', true, (n) => `The answer is ${n} because we add 3 and 4.`],
  ['not another', true, (n) => `The answer is ${n}, not ${n + 1}.`],
  ['答案', true, (n) => `所以答案是${n}。`],
  ['thinking', true, (n) => `<think>Perhaps \\boxed{${n + 7}}.</think>It is \\boxed{${n}}.`],
  ['corrected', true, (n) => `It is \\boxed{${n + 1}}. No: \\boxed{${n}}.`],

  ['one more', false, (n) => `So we add them up. The answer is ${n + 1}.`],
  ['one more, boxed', false, (n) => `So the total is $\\boxed{${n + 1}}$.`],
  ['one more, ####', false, (n) => `So we add 3 and 4.\n#### ${n + 1}`],
  ['ten times', false, (n) => `The answer is ${n * 10}.`],
  ['other sign', false, (n) => `The answer is ${-n}.`],
  ['a half more', false, (n) => `The answer is ${n}.5.`],
  ['half', false, (n) => `The answer is ${n}/2.`],
  ['thousands', false, (n) => `The answer is ${n} thousand.`],
  ['not n but', false, (n) => `The answer is ${n + 1}, not ${n}.`],
  ['derived from n', false, (n) => `The answer is ${n + 1}, which is ${n} + 1.`],
  ['n in the working', false, (n) => `First ${n}, then one more. The answer is ${n + 1}.`],
  ['n boxed before', false, (n) => `Perhaps \\boxed{${n}}. No: the final answer is \\boxed{${n + 1}}.`],
  ['n in the thinking', false, (n) => `<think>Perhaps \\boxed{${n}}.</think>It is \\boxed{${n + 1}}.`],
  ['contradiction', false, (n) => `So \\boxed{${n} = ${n + 1}}`],
  ['two answers', false, (n) => `So \\boxed{${n}, ${n + 1}}`],
  ['equation of others', false, (n) => `So \\boxed{${n} + 1 = ${n + 1}}`],
  ['expression', false, (n) => `So \\boxed{${n} x}`],
];
