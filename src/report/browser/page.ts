/** The script of every page: colours, curves, and updates while a run goes on. */
import { connectActions } from './actions.js';
import { connectList } from './list.js';
import { follow } from './live.js';
import { Plots } from './plots.js';

const data = JSON.parse(document.getElementById('page-data')?.textContent || '{}');
const plots = new Plots(data.plots ?? []);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => plots.recolour());
plots.mount(document);
plots.connectSmoothing();
plots.connectPrint();
if (typeof data.live === 'string') {
  connectActions();
  connectList();
  follow(data.live, plots);
}
