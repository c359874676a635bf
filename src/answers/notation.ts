// The names of LaTeX and plain notation that answers are written in.

/** Commands that only set type: dropped. */
export const LAYOUT = new Set(
  (
    'left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle ' +
    'scriptstyle limits nolimits mathstrut strut allowbreak nobreak normalsize large Large quad qquad hfill ' +
    'thinspace enspace medspace thickspace negthinspace hspace vspace rm bf it tt sf centering hline'
  ).split(' '),
);

/** Commands whose group is words, or mathematics in another type. */
export const TYPE_COMMANDS = new Set(
  (
    'text textbf textit textrm textsf texttt textnormal textup emph mbox hbox mathrm mathit mathsf mathtt mathnormal ' +
    'operatorname mathop underline'
  ).split(' '),
);

/** Type that tells one symbol from another: **i** is not i. */
export const SYMBOL_TYPE = new Set(
  (
    'mathbf boldsymbol bm pmb mathbb mathcal mathfrak mathscr overline vec hat bar tilde widehat widetilde dot ddot ' +
    'overrightarrow overleftrightarrow overset underset overbrace underbrace'
  ).split(' '),
);

/** Other spellings of one command. */
export const ALIASES: ReadonlyMap<string, string> = new Map([
  ...pairs('frac', 'dfrac tfrac cfrac nicefrac sfrac'),
  ...pairs('binom', 'dbinom tbinom'),
  ...pairs('cdot', 'times ast bullet'),
  ...pairs('/', 'div'),
  ...pairs('le', 'leq leqslant leqq'),
  ...pairs('ge', 'geq geqslant geqq'),
  ...pairs('ne', 'neq'),
  ...pairs('<', 'lt'),
  ...pairs('>', 'gt'),
  ...pairs('approx', 'simeq thickapprox cong sim doteq'),
  ...pairs('infty', 'infin inf infinity'),
  ...pairs('emptyset', 'varnothing'),
  ...pairs('setminus', 'backslash smallsetminus'),
  ...pairs('cup', 'bigcup union'),
  ...pairs('in', 'isin'),
  ...pairs('{', 'lbrace'),
  ...pairs('}', 'rbrace'),
  ...pairs('[', 'lbrack'),
  ...pairs(']', 'rbrack'),
  ...pairs('|', 'vert lvert rvert'),
  ...pairs(':', 'colon'),
  ...pairs('arcsin', 'asin'),
  ...pairs('arccos', 'acos'),
  ...pairs('arctan', 'atan'),
  ...pairs('phi', 'varphi'),
  ...pairs('epsilon', 'varepsilon'),
  ...pairs('theta', 'vartheta'),
  ...pairs('degree', 'deg'),
  ...pairs('dots', 'ldots cdots dotsc dotsb dotsm vdots'),
]);

/** Functions of one argument that stand before it, with or without brackets. */
export const FUNCTIONS = new Set(
  (
    'sin cos tan sec csc cot arcsin arccos arctan sinh cosh tanh ln log lg exp abs floor ceil cbrt det max min gcd lcm ' +
    'Re Im arg'
  ).split(' '),
);

/** Sums and their like: compared as they are written, up to the order of factors. */
export const BIG_OPERATORS = new Set('sum prod int iint oint lim bigcap limsup liminf sup'.split(' '));

/** Words that are commands without their backslash, as calculators and programs write them. */
export const PLAIN_COMMANDS = new Set([
  ...FUNCTIONS,
  'sqrt',
  'pi',
  'infinity',
  'asin',
  'acos',
  'atan',
  'inf',
]);

/** Commands that name a quantity. */
export const SYMBOL_COMMANDS = new Set(
  (
    'alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega ' +
    'Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega pi infty ell hbar angle triangle'
  ).split(' '),
);

export const RELATIONS: ReadonlyMap<string, string> = new Map([
  ['=', '='],
  ['==', '='],
  ['<', '<'],
  ['>', '>'],
  ['<=', '≤'],
  ['=<', '≤'],
  ['>=', '≥'],
  ['=>', '≥'],
  ['!=', '≠'],
  ['\\le', '≤'],
  ['\\ge', '≥'],
  ['\\ne', '≠'],
  ['\\approx', '≈'],
  ['\\in', '∈'],
  ['\\equiv', '≡'],
]);

/** Single characters outside ASCII and what LaTeX writes for them. */
export const UNICODE: ReadonlyMap<string, string> = new Map([
  ...each('−–—‐‑﹣', '-'),
  ...each('×·⋅∙•∗', '\\cdot '),
  ...each('÷∕⁄', '/'),
  ...each('≤⩽', '\\le '),
  ...each('≥⩾', '\\ge '),
  ['≠', '\\ne '],
  ...each('≈≃≅', '\\approx '),
  ['±', '\\pm '],
  ['∓', '\\mp '],
  ['√', '\\sqrt '],
  ['π', '\\pi '],
  ['∞', '\\infty '],
  ...each('°º˚', '\\degree '),
  ...each('′’‘', "'"),
  ...each('“”″', '"'),
  ['∪', '\\cup '],
  ['∩', '\\cap '],
  ['∈', '\\in '],
  ['∅', '\\emptyset '],
  ['∖', '\\setminus '],
  ['≡', '\\equiv '],
  ['ℝ', '\\mathbb{R}'],
  ['∠', '\\angle '],
  ['△', '\\triangle '],
  ['。', '. '],
  ['、', ', '],
  ...[...'¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞'].map((fraction) => [fraction, fractionOf(fraction)] as const),
  ...greek('αβγδεζηθικλμνξρστυφχψωΓΔΘΛΞΠΣΦΨΩ'),
  ...each('\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000', ' '),
  ...each('\u200b\u200c\u200d\u2060\ufeff', ''),
]);

/** Runs of raised and lowered characters, as in 10⁻¹². */
export const RAISED = /[⁰¹²³⁴-⁹⁺⁻⁼⁽⁾ⁱⁿˣʸᵏᵐ]+/gu;
export const LOWERED = /[₀-₉₊₋₌₍₎ₙᵢⱼₖₘₓ]+/gu;

function fractionOf(character: string): string {
  const [over, under] = character.normalize('NFKD').split('⁄');
  return `\\frac{${over}}{${under}}`;
}

function pairs(name: string, spellings: string): [string, string][] {
  return spellings.split(' ').map((spelling) => [spelling, name]);
}

function each(characters: string, text: string): [string, string][] {
  return [...characters].map((character) => [character, text]);
}

function greek(letters: string): [string, string][] {
  const names =
    'alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega ' +
    'Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega';
  const list = names.split(' ');
  return [...letters].map((letter, i) => [letter, `\\${list[i]} `]);
}
