import type { Step } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { checkedText, labelValue, listColumn, textColumn } from '../columns.js';
import type { Source } from './source.js';

/** TRL's stepwise supervision: a prompt, its steps, and a right/wrong mark for each. */
export const stepwise: Source<object> = {
  name: 'stepwise',
  columns: 'prompt, completions (texts), labels (true/false)',
  matches: (row) =>
    typeof row.prompt === 'string' && Array.isArray(row.completions) && Array.isArray(row.labels),
  convert(row, _options, log) {
    const problem = textColumn(row, 'prompt');
    const texts = listColumn(row, 'completions');
    const labels = listColumn(row, 'labels');
    if (texts.length !== labels.length) {
      throw new BadRow(
        'length_mismatch',
        `there are ${texts.length} completions but ${labels.length} labels`,
      );
    }
    if (texts.length === 0) throw new BadRow('no_steps', "column 'completions' is an empty list");
    const steps = texts.map((text, i): Step => {
      const label = labelValue(labels[i], `label ${i + 1}`);
      if (label === null) log.unlabelled('null_label');
      return { text: checkedText(text, `completion ${i + 1}`), label, kind: 'normal' };
    });
    return [{ problem, steps }];
  },
};
