// The answer found in a solution, and the place where it was found.
import { describe, expect, it } from 'vitest';
import { answersEqual } from '../../src/answers/equal.js';
import { type ExtractionMethod, extractAnswer } from '../../src/answers/extract.js';
import { grade } from '../../src/answers/grade.js';

type Row = readonly [text: string, answer: string, method: ExtractionMethod];

describe('extractAnswer', () => {
  it.each<Row>([
    ['We get $2+2=\\boxed{4}$.', '4', 'boxed'],
    ['First \\boxed{3}, no: \\boxed{5}', '5', 'boxed'],
    ['so $\\boxed{\\frac{1}{\\sqrt{2}}}$ holds', '\\frac{1}{\\sqrt{2}}', 'boxed'],
    ['so \\boxed{\\boxed{7}}', '7', 'boxed'],
    ['so \\fbox{7}', '7', 'boxed'],
    ['so $\\boxed 7$', '7', 'boxed'],
    ['good \\boxed{3} then \\boxed{12', '3', 'boxed'],
    ['\\boxed{1} and \\boxed{2}', '1, 2', 'boxed'],
    ['$\\boxed{k = 45} \\quad \\text{and} \\quad \\boxed{n = 2}$', 'k = 45, n = 2', 'boxed'],
    ['\\boxed{1\\frac12} or \\boxed{1.5}', '1\\frac12 or 1.5', 'boxed'],
    ['\\boxed{3} is the answer. Check once more: \\boxed{3}.', '3', 'boxed'],
    ['= \\boxed{52}_8', '52_8', 'boxed'],
    [
      'Interest is \\boxed{200}. Final Answer: The final answer is $10,455$. I hope it is correct.',
      '$10,455$',
      'phrase',
    ],
  ])('takes the boxed answer of %j', (text, answer, method) => {
    expect(extractAnswer(text)).toEqual({ answer, method });
  });

  it.each<Row>([
    ['She has 3 * 6 = <<3*6=18>>18.\n#### 18', '18', 'marker'],
    ['#### 5\nno\n#### 1,234', '1,234', 'marker'],
    ['16 - 7 = 9\n#### 9\n\nQuestion: Tom has 3 and gets 4?\nAnswer: 3 + 4 = 7\n#### 7', '9', 'marker'],
    ['16 - 7 = 9\n#### 9\n\n**Q2:** and then?\n\\boxed{7}', '9', 'marker'],
    ['Question: how many?\n16 - 7 = 9\n#### 9', '9', 'marker'],
    ['Q: 1 + 1? The answer is 2.\nQ: and 3 more? The answer is 5.', '5', 'phrase'],
    ['The answer is 42.', '42', 'phrase'],
    ['The answer is $\\frac{1}{2}$.', '$\\frac{1}{2}$', 'phrase'],
    ['The answer is $3.50. I am sure.', '$3.50', 'phrase'],
    ['the answer is 3, no, the answer is 4 apples.', '4 apples', 'phrase'],
    ['**Answer:** 12', '12', 'phrase'],
    ['A: 18', '18', 'phrase'],
    ['The answer is 5 + 3 = 8.', '5 + 3 = 8', 'phrase'],
    ['The answer is 14 (7*2).', '14', 'phrase'],
    ['The answer is 14 (= 7*2).', '14', 'phrase'],
    ['The answer is 14 [7*2].', '14', 'phrase'],
    ['The answer is 2 [x+1].', '2 [x+1]', 'phrase'],
    ['### Answer\n5', '5', 'phrase'],
    ['so 2 + 3 are 5\n\n## **Answer**\n\n5 apples', '5 apples', 'phrase'],
    ['<answer>5</answer>', '5', 'whole'],
    ['so \\boxed{3}? <answer> 7 </answer> I hope 9 is fine.', '7', 'whole'],
    ['<answer>so it is \\boxed{5}</answer>', '5', 'boxed'],
    ['<answer>8</answer> or <ANSWER>so it is 5 apples', '5', 'number'],
    ['so there are 5 of them <answer></answer>', '5', 'number'],
    ['The answer is 14, which is 7*2.', '14', 'phrase'],
    ['The answer is 72 clips, altogether.', '72 clips', 'phrase'],
    ['#### 72, in all', '72', 'marker'],
    ['The answer is 72, of which 5 are red.', '72', 'phrase'],
    ['The answer is 30, in total 72.', '30, in total 72', 'phrase'],
    ['#### 3, 5, respectively', '3, 5', 'marker'],
    ['The answer is 14 because 7 + 7 is 14 and 3 more would be 17.', '14', 'phrase'],
    ['The answer is 14, not 15.', '14', 'phrase'],
    ['The answer is $14$ — that is, $7 \\cdot 2$.', '$14$', 'phrase'],
    ['The answer is 14 (rounded to 2 places).', '14', 'phrase'],
    ['The answer is 2 (x+1).', '2 (x+1)', 'phrase'],
    ['The answer is 3 (mod 5).', '3 (mod 5)', 'phrase'],
    ['The answer is 7 times 2, which is 14.', '14', 'phrase'],
    ['The answer is half of 28, which is 14.', '14', 'phrase'],
    ['The answer is `5`.', '`5`', 'phrase'],
    ['所以答案是42个苹果。还有3个。', '42个苹果', 'phrase'],
    ['7 * 2 = 14\n#### 14 (7*2)', '14', 'marker'],
    ['so there are 1.5 million people in all', '1.5 million', 'number'],
    ['we have 1 000 000 of them in the end', '1 000 000', 'number'],
    ['Final Answer: The volume of $ABCD$ is 120. I hope it is correct.', '120', 'phrase'],
    ['I think the correct answer is (C) because 3 > 2.', '(C) because 3 > 2', 'phrase'],
    ['Therefore $x \\geq 5$ is the solution.', 'x \\geq 5', 'math'],
    ['so that \\(y = 2\\) follows from it', 'y = 2', 'math'],
    ['She makes 9 * 2 = $18 every day.', '$18', 'number'],
    ['It costs $10 and then $20 in all, so they pay $30.', '$30', 'number'],
    ['so we are left with 1,234 of them', '1,234', 'number'],
    ['this leaves -3.5 in the end', '-3.5', 'number'],
    ['this makes 3 1/2 in the end', '3 1/2', 'number'],
    ['they are 25% of all that we saw', '25%', 'number'],
    ["It is not A, so I think it's B", 'B', 'choice'],
    ['13/28', '13/28', 'whole'],
    ['5 apples', '5 apples', 'whole'],
    ['Evelyn', 'Evelyn', 'whole'],
    ['$19, 46,$ and $82$', '$19, 46,$ and $82$', 'whole'],
  ])('takes the marked, announced or last answer of %j', (text, answer, method) => {
    expect(extractAnswer(text)).toEqual({ answer, method });
  });

  it.each([
    ['The answer is not 15.', '15', undefined],
    ["The answer isn't 15.", '15', undefined],
    ['The answer is not 15 but 14.', '15', '14'],
    ['The answer is minus 5.', '5', '-5'],
    ['The answer is negative 5.', '5', '-5'],
    ['So the temperature is minus 5 in the end.', '5', '-5'],
    ['So it is not 5.', '5', undefined],
    ['The answer is 5? No, it is 7.', '5', '7'],
    ['The answer is 5?', '7', '5'],
    ['答案是5？不，是7。', '5', '7'],
    ['The answer cannot be 5, so it is 7.', '5', '7'],
    ["It can't be 5.", '5', undefined],
    ['The answer cannot be determined from the 5 clues.', '5', undefined],
    ['I am unable to solve this with 5 equations', '5', undefined],
    ['We cannot determine x directly, but by symmetry it is 5.', '7', '5'],
    ['You cannot fit more than 5', '7', '5'],
    ['The answer is between 3 and 5.', '5', undefined],
    ['The answer is from 3 to 5.', '5', undefined],
    ['The answer is less than 5.', '5', undefined],
    ['The answer is all real numbers except 3.', '3', undefined],
    ['The answer is all x > 3.', '3', undefined],
    ['The answer is half of 28.', '28', undefined],
    ['The answer is half of 28, 14.', '28', '14'],
    ['The answer is the square root of 16.', '16', undefined],
    ['The answer is twice 7.', '7', undefined],
    ['The answer is $\\frac34$ of 12.', '12', undefined],
    ['The answer is the sum of 3 and 4.', '4', undefined],
    ['The answer is the sum of 3 and 4, which is 7.', '4', '7'],
    ['The answer is 5 times as many as 3.', '3', undefined],
    ['The answer is divisible by 3.', '3', undefined],
    ['The answer is undefined (division by 0).', '0', 'undefined'],
    ['The answer is no solution since 0 = 5.', '5', 'no solution'],
    ['The answer is none of the 5.', '5', 'none'],
    ['The answer is 5, which is wrong.', '5', undefined],
    ['The answer is 5 (wrong).', '5', undefined],
    ['The answer is 5 (million).', '5', undefined],
    ['The answer is $5$ (in thousands).', '5', undefined],
    ['The answer is 5 (or 6 with Tom).', '5', undefined],
    ['The answer is x = 3 (and y = 4).', '3', undefined],
    ['The answer is 3 factorial.', '3', '6'],
    ['The answers are 5 and 6.', '6', '5, 6'],
    ['The two answers: 5, 6', '6', '5, 6'],
    ['The answer is either 5 or 6.', '6', '5, 6'],
    ['The answer could be 5 or 6.', '6', '5, 6'],
    ['The answer is one of 5, 6, 7.', '7', undefined],
    ['His answers are 20 of 25. So he has 80 points.', '25', '80'],
    ['答案：不是42', '42', undefined],
  ])('a number that %j denies or changes is no answer', (text, wrong, right) => {
    expect(grade(text, wrong).correct).toBe(false);
    if (right !== undefined) expect(grade(text, right).correct).toBe(true);
  });

  it.each([
    ['It is 10².', '10', '100'],
    ['So the speed is 2·10³ in the end.', '10', '2000'],
    ['So the speed is 2 × 10³ m/s.', '10', '2000'],
    ['So there are 1.5 x 10^3 of them.', '3', '1500'],
    ['So it must be 2^10, a power of two.', '2', '1024'],
    ['The length of it is 5⅜ inches', '5', '5.375'],
    ['So we cut off ⅜ of the pie.', '8', '3/8'],
    ['So it takes −2½ hours in all.', '-2', '-2.5'],
    ['So it takes 2⁻³ of it', '2', '1/8'],
    ['So we have m+n = 256+37 = 293', '37', '293'],
    ['So we get 5 = 2 + 3.', '3', '5'],
    ['So we get 36 - 7 = 29 = x.', '7', '29'],
    ['So it is 37+27.75 = 64.75 ≈ 65 meters.', '64.75', '65'],
    ['So the ratio that we want is 3:4.', '4', '3:4'],
    ['So the train leaves at 3:20 pm.', '20', '3:20 PM'],
    ['So the area is 12π cm².', '12', '12\\pi'],
    ['So the root is 3√2.', '2', '3\\sqrt{2}'],
    ['So we get x = \\frac{3}{4}.', '4', '3/4'],
    ['Thus \\left(3, \\frac{\\pi}{2}\\right) is the point', '3', '(3, \\pi/2)'],
    ['Thus it is the point (3, 4).', '4', '(3, 4)'],
    ['So there are 5! ways.', '5', '120'],
    ['So there are 5!', '120', '5'],
    ['The answer is 5!', '120', '5'],
    ['So it is 52_8.', '52', '52_8'],
    ['So f is x² + 1.', '1', 'x^2+1'],
    ['So there are 129 spacy subsets of S_{12}.', '12', '129'],
    ['There is a \\frac{1}{2} probability.', '2', '1/2'],
    ['So he is 5 feet 3 inches tall', '3', '63 inches'],
    ['So it is 5 km long', '5 m', '5000 m'],
    ['So it is $5$ km long', '5 m', '5'],
    ['So she pays 5 cents in all', '5 dollars', '5'],
    ['So there are 7 dozen eggs.', '84', '7'],
    ['So it is 5m/s.', 'm', '5'],
    ['So Tom gets - 3 apples', '-3', '3'],
    ['So it takes 10-15 minutes', '10', '15'],
    ['72; done', 'done', '72'],
    ['The answer is 72; all good.', 'all good', '72'],
    ['#### 72, I think', '73', '72'],
    ['72 (done)', '73', '72'],
    ['The answer is 72 :)', '73', '72'],
    ['The answer is 5 and not 7.', '7', '5'],
    ['The answer is +3 and not -3', '-3', '3'],
    ['The answer is $5$, but not $7$.', '7', '5'],
    ['The answer is 5 and 7, but not 9.', '9', '5, 7'],
    ['The answer is $-2$ or $3$ because 3 - 2 = 1.', '1', '-2 or 3'],
    ['The answer is 72, no wait.', '72', undefined],
    ['The answer is 12, in thousands.', '12', undefined],
    ['The answer is 5, infinity.', '5', undefined],
    ['The answer is 3; 4', '3', '3, 4'],
  ])('%j is read whole', (text, wrong, right) => {
    expect(grade(text, wrong).correct).toBe(false);
    if (right !== undefined) expect(grade(text, right).correct).toBe(true);
  });

  it('takes no time that grows with the square of mathematics in words', () => {
    for (const text of ['(1', '√', 'x^{', '\\frac{', '(1+1,', '1 x 10^', '5 feet ', '\\left('])
      expect(() => extractAnswer(text.repeat(Math.ceil(100_000 / text.length)))).not.toThrow();
  });

  it('a bound that is named is the answer, as for Math-Verify', () => {
    expect(grade('The answer is at least 5.', '5').correct).toBe(true);
    expect(grade('The answer is an average of 60 mph.', '60').correct).toBe(true);
  });

  it('ignores everything before the end of the thinking', () => {
    expect(extractAnswer('<think>\\boxed{3}</think> so \\boxed{4}')?.answer).toBe('4');
    expect(extractAnswer('\\boxed{3}</think> Hello to all of you.')).toBeUndefined();
    expect(extractAnswer('<think> it may be \\boxed{3}')).toBeUndefined();
    expect(extractAnswer('<reasoning> it may be \\boxed{3}')).toBeUndefined();
    expect(extractAnswer('is it \\boxed{3}?</thought> \\boxed{4}')?.answer).toBe('4');
    expect(extractAnswer('so it is \\boxed{3}<|im_end|><|im_start|>user \\boxed{4}')?.answer).toBe('3');
  });

  it('finds no answer in reasoning that the prompt opened and nothing ends, as TRL', () => {
    const opened = { inReasoning: true };
    expect(extractAnswer('so \\boxed{4}', opened)).toBeUndefined();
    expect(extractAnswer('so \\boxed{4}<|im_end|></think>\\boxed{4}', opened)).toBeUndefined();
    expect(extractAnswer('is it \\boxed{3}?</think> so \\boxed{4}', opened)?.answer).toBe('4');
    expect(grade('so \\boxed{4}', '4', opened)).toMatchObject({ correct: false, got: null });
    expect(grade('</think>4', '<think>a</think> so \\boxed{4}', opened).correct).toBe(true);
  });

  it.each([
    ['The answer is A or B.', 'A'],
    ['The answer is (A) and (B).', 'A'],
    ['It is not B.', 'B'],
    ['The answer is not A.', 'A'],
  ])('takes no single letter of %j', (text, letter) => {
    expect(grade(text, letter).correct).toBe(false);
    expect(grade(text, letter, { expect: 'choice' }).correct).toBe(false);
    expect(grade('The answer is A, and B is wrong.', 'A', { expect: 'choice' }).correct).toBe(true);
  });

  it.each([
    ['H is **D**. So \\boxed{\\Delta E}.\n\n**Answer: D**', 'D'],
    ['\\boxed{E: A polygenic score}', 'E'],
    ['\\boxed{\\text{E}}', 'E'],
    ['The correct answer is d.', 'D'],
    ['b. 4', 'B'],
    ['d', 'D'],
    ['The answer is D.', 'd'],
  ])('reads the letter of %j where a choice is expected', (text, letter) => {
    for (const each of 'ABCDE')
      expect([each, grade(text, each, { expect: 'choice' }).correct]).toEqual([
        each,
        each === letter.toUpperCase(),
      ]);
    expect(grade(text, letter, { expect: 'choice' }).correct).toBe(true);
  });

  it.each([
    ['The answer is a ) 38', 'a', 'b'],
    ['\\boxed{c) 12}', 'c', 'b'],
    ['Answer: c)', 'c', 'C) and D)'],
    ['The answer is A.', 'a', 'x'],
    ['The correct option is e) none of these', 'e', 'n'],
    ['Option (b) is correct.', 'b', 'o'],
    ['The answer is No, it is not valid.', 'no', 'valid'],
    ['The answer is no, because 3 is odd.', 'no', '3'],
    ['The answer is yes because 4 is even.', 'Yes', '4'],
    ['**Answer:** No - the lines never meet.', 'No', 'yes'],
    ['The answer is true, since 3>2.', 'true', '2'],
    ['The answer is True, False, True', 'True, False, True', 'True'],
    ['The answer is no, wait, yes', 'no, wait, yes', 'no'],
    ['The answer is Tom, who has more.', 'Tom', 'Eva'],
    ['The answer is January 5, 2021.', 'January 5, 2021', 'January 6, 2021'],
    ['The answer is Team 3', 'Team 3', 'Team 4'],
    ['Answer: None of the above', 'none of the above', 'all of the above'],
    ['\\boxed{5}. The final answer is positive, because two are negative.', '5', 'positive'],
    ['The answer is f(x)', 'f(x)', 'f'],
  ])('reads %j as %j, not as %j', (text, right, wrong) => {
    expect(grade(text, right).correct).toBe(true);
    expect(grade(text, wrong).correct).toBe(false);
  });

  it('prefers a letter if a choice is expected', () => {
    const text = 'It must be B, since 3 is more than 2.';
    expect(extractAnswer(text)?.answer).toBe('2');
    expect(extractAnswer(text, { expect: 'choice' })).toEqual({ answer: 'B', method: 'choice' });
    expect(extractAnswer('The answer is (C) because 3 > 2.', { expect: 'choice' })?.answer).toBe('C');
  });

  it.each(['', '   ', 'There is nothing to be said about it here.', '\\boxed{}', '$$'])(
    'finds none in %j',
    (text) => {
      expect(extractAnswer(text)).toBeUndefined();
    },
  );
});

// MMLU-Pro has options up to J, and BIG-Bench Hard up to R.
it.each([
  ['The correct answer is option %: 12 dogs', 'any'],
  ['Among 12 and 13, (%)', 'any'],
  ['So the correct option is %.', 'any'],
  ['answer: (%) 12 dogs', 'any'],
  ['\\boxed{(%)\\ 12}', 'any'],
  ['The answer is %, 12.', 'choice'],
  ['%. 12 dogs', 'choice'],
] as const)('%j is the choice where a letter is expected, whatever the letter', (text, kind) => {
  for (const letter of 'BCDIJKRXZ')
    for (const expected of [letter, `(${letter})`, `${letter}. 12 dogs`]) {
      const of = (name: string) => grade(text.replace('%', name), expected, { expect: kind }).correct;
      expect(of(letter), `${text} ${expected}`).toBe(true);
      expect(of('E'), `${text} ${expected}`).toBe(false);
    }
});

describe('Markdown', () => {
  it.each([
    ['### Final Answer\n\n$$42$$', '42', 'phrase'],
    ['## Final Answer\n\\[x = 42\\]', '42', 'phrase'],
    ['### 42', '42', 'whole'],
    ['#### 42', '42', 'marker'],
    ['#### Final Answer\n\n$42$', '42', 'phrase'],
    ['#### Step 2: Multiply by 6\n\n$\\frac{1}{2}$', '1/2', 'whole'],
    ['#### Conclusion\n\nSo there are 42.', '42', 'number'],
    ['#### no solution', 'no solution', 'marker'],
    ['**Final Answer**\n\n\\frac{1}{2}', '1/2', 'phrase'],
    ['Final Answer\n============\n\n42', '42', 'phrase'],
    ['### 3. Final Answer\n\n- $x = 42$', '42', 'phrase'],
    ['> ### Final Answer\n>\n> `42`', '42', 'phrase'],
    ['### Final Answer — **42**', '42', 'phrase'],
    ['### Final Answer\n\n```\n42\n```', '42', 'phrase'],
    ['We add.\n\n---\n\n42\n\n---', '42', 'number'],
    ['### Final Answer\n\n__42__\n\n### Check\n\nAll 3 parts agree with 7.', '42', 'phrase'],
    ['### Step 1\n\nTake \\boxed{7}.\n\n### Final Answer\n\n42', '42', 'phrase'],
    ['## Result\n\nTom has 3 bags of 14, so 42 in all.', '42', 'number'],
    ['_42_', '42', 'whole'],
    ['We add.\n\n<b>42</b>', '42', 'number'],
    ['<em>42</em>', '42', 'whole'],
    ['**答案**：42', '42', 'phrase'],
    ['Answer: 42</s>', '42', 'phrase'],
    ['<s>Answer: 41</s> Answer: 42<end_of_turn>\n<start_of_turn>user\n7?', '42', 'phrase'],
    ['$$\n\\begin{aligned}\nx &= 40\n+ 2\n\\end{aligned}\n$$\n\n## Answer\n$$\n- 42\n$$', '-42', 'phrase'],
  ])('%j is read as %s', (text, answer, method) => {
    const found = extractAnswer(text);
    expect(found?.method).toBe(method);
    expect(answersEqual(found?.answer ?? '', answer).equal).toBe(true);
    expect(grade(text, '7').correct).toBe(false);
  });

  it('takes no time that grows with the square of a hostile text', () => {
    for (const text of ['# a\n', `# ${' '.repeat(99_000)}x`, '> ', '**a', '- ', '#### a\n\n', '___\n', '\\['])
      expect(() => extractAnswer(text.repeat(Math.ceil(100_000 / text.length)))).not.toThrow();
  });
});

describe('a graded reply that says what a quantity is', () => {
  it.each([
    ['Answer: m+n = 256+37 = 293', '293'],
    ['So \\boxed{a + b + c = 12 + 25 + 25 = 62}.', '62'],
    ['\\boxed{100m+n = 293}', '293'],
    ['\\boxed{293 = m + n}', '293'],
    ['Therefore $AB + BC = 12\\text{ cm}$.', '12'],
    ['\\boxed{f(2) + f(3) = 13}', '13'],
  ])('%j answers %s', (text, answer) => {
    expect(grade(text, answer).correct).toBe(true);
  });

  it.each([
    ['\\boxed{m+n = 293}', '294'],
    ['\\boxed{m+n = 293}', 'm + n'],
    // An equation in one name asks for it, and a line is no number.
    ['\\boxed{2x + 1 = 5}', '5'],
    ['\\boxed{x^2 = 4}', '4'],
    ['\\boxed{f(2) + f(2) = 13}', '13'],
    ['\\boxed{5}', 'x + y = 5'],
    ['\\boxed{x + y = 5}', '2x + 2y = 9'],
  ])('%j does not answer %s', (text, answer) => {
    expect(grade(text, answer).correct).toBe(false);
  });
});
