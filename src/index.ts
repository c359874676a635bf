/** The embedding API of steptrain. */

export { type Parameter, type ParameterSpec, TrainableParameters } from './autograd/parameters.js';
export { Tape } from './autograd/tape.js';
export { Adapter, createAdapter, loadAdapter } from './models/adapter.js';
export { type RaggedBatch, raggedBatch, type Sequence } from './models/batch.js';
export { Decoder, type Role } from './models/decoder.js';
export { loadDecoder, loadTrainableDecoder } from './models/load.js';
export { type LoadModelOptions, loadModel, Model, type SequenceScore } from './models/model.js';
export { DisposedError, StepTrainError } from './native/errors.js';
export { nll } from './objectives/nll.js';
export { headLogprobs } from './ops/head.js';
export { gatherRows } from './ops/memory.js';
export { Device, type DeviceOptions, openDevice } from './runtime/device.js';
export { type DType, Tensor } from './runtime/tensor.js';
export { AdamW, type AdamWOptions } from './train/adamw.js';
