import type { Step } from '../../records/record.js';
import { misfit, wholeNumber } from '../columns.js';
import type { ConversionLog } from './source.js';

/**
 * The steps of a layout with the index of the first wrong one: those before it are right, it is wrong, those after it
 * have no label.
 *
 * @param column with its index, counted from 0
 * @param none the column's value where no step is wrong, in words
 */
export function stepsToFirstWrong(
  texts: readonly string[],
  value: unknown,
  { column, none }: { readonly column: string; readonly none: string },
  log: ConversionLog,
): Step[] {
  const wrong = wholeNumber(value);
  if (typeof wrong !== 'number' || !Number.isInteger(wrong) || wrong < -1 || wrong >= texts.length)
    throw misfit(
      `column '${column}' is`,
      wrong,
      `the index of the first wrong step (0 to ${texts.length - 1}) or ${none}`,
      'bad_label',
    );
  return texts.map((text, i): Step => {
    const isAfter = wrong >= 0 && i > wrong;
    if (isAfter) log.unlabelled('after_first_error');
    return { text, label: isAfter ? null : i === wrong ? 0 : 1, kind: 'normal' };
  });
}
