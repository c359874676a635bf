/** The script of every page: colours, curves, and updates while a run goes on. */
import { connectActions } from './actions.js';
import { connectList } from './list.js';
import { follow } from './live.js';
import { Plots } from './plots.js';
import { connectTheme } from './theme.js';
import { markReading } from './toc.js';

const data = JSON.parse(document.getElementById('page-data')?.textContent || '{}');
const plots = new Plots(data.plots ?? []);
connectTheme(() => plots.recolour());
plots.mount(document);
plots.connectSmoothing();
plots.connectPrint();
markReading();
if (typeof data.live === 'string') {
  connectActions();
  connectList();
  follow(data.live, plots);
}
