/** Stub until the kernels' own. */
import type { Parameter } from '../autograd/parameters.js';
import type { Tensor } from '../runtime/tensor.js';
import type { Dropout, LoraPair } from './gemm.js';

export interface Routing {
  readonly weights: Tensor;
  readonly experts: Tensor;
  readonly places: Tensor;
  readonly rows: Tensor;
  readonly offsets: Tensor;
}
export interface ExpertStack {
  readonly a: Tensor;
  readonly b: Tensor;
  readonly scales: Tensor;
}
export interface ExpertsOptions {
  readonly lora?: LoraPair | undefined;
  readonly stack?: { readonly pairs: ExpertStack; readonly adapter: Tensor } | undefined;
  readonly dropout?: Dropout | undefined;
}
export const route = (_logits: Tensor, _options: { k: number; normalise: boolean }): Routing => {
  throw new Error();
};
export const gatherRouted = (_x: Tensor, _routing: Routing): Tensor => {
  throw new Error();
};
export const linearExperts = (
  _x: Tensor,
  _weight: Parameter,
  _routing: Routing,
  _options: ExpertsOptions = {},
): Tensor => {
  throw new Error();
};
export const combineExperts = (_y: Tensor, _routing: Routing): Tensor => {
  throw new Error();
};
export const stackWeight = (_w: Tensor, _expert: number, _experts: number, _stack?: Tensor): Tensor => {
  throw new Error();
};
export const expertWeight = (_stack: Tensor, _expert: number): Tensor => {
  throw new Error();
};
