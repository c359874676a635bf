/**
 * The parts of a training step: tensors and the tape, models with their adapters and heads, batches and forwards,
 * objectives, generation, weights, tokenizers.
 *
 * @packageDocumentation
 */

export type { AttendOptions } from '../architectures/architecture.js';
export type { DtypeName, ModelConfig } from '../architectures/config.js';
export type { ModelHead } from '../architectures/heads.js';
export type { PublishedHead } from '../architectures/published-heads.js';
export {
  type Parameter,
  type ParameterBuffer,
  type ParameterSpec,
  TrainableParameters,
  type TrainedParameters,
} from '../autograd/parameters.js';
export { type AuxiliaryLoss, type Disposable, type Gradients, type Saved, Tape } from '../autograd/tape.js';
export type { Generation } from '../generate/generation.js';
export {
  type GenerateOptions,
  Generator,
  type GeneratorLoad,
  type GeneratorOptions,
  type ResumeOptions,
} from '../generate/generator.js';
export type { SamplingOptions } from '../generate/options.js';
export { type Prompt, promptTokens } from '../generate/prompts.js';
export { Detokenizer, type DetokenizerOptions, detokenize } from '../generate/rows/detokenize.js';
export type { FinishReason, GeneratedToken, SavedSample } from '../generate/rows/sample-row.js';
export {
  generatorSource,
  type SampleSource,
  type SourceOptions,
  type SourceSample,
} from '../generate/sample-source.js';
export type { GenerationSnapshot, SavedOptions } from '../generate/snapshot.js';
export type { TokenLogprob } from '../generate/step/drawn.js';
export { Adapter, createAdapter, type DropoutSource, loadAdapter } from '../models/adapter.js';
export { createAdapterOn } from '../models/adapter-on-base.js';
export { AdapterStack, type StackPlace } from '../models/adapter-stack.js';
export { type RaggedBatch, raggedBatch, type Sequence, type TokenBatch } from '../models/batch.js';
export {
  Decoder,
  type DecoderOptions,
  type LinearHead,
  type Role,
  type Rounding,
  type StackedRole,
} from '../models/decoder.js';
export {
  createHead,
  type HeadOptions,
  headOutputs,
  headRows,
  loadHead,
  roleHead,
  scalarOutputs,
  type TrainableHead,
} from '../models/heads.js';
export {
  type FurtherHeads,
  type LoadOptions,
  loadDecoder,
  loadTrainableDecoder,
  type OtherHead,
} from '../models/load.js';
export type { MergeReport } from '../models/merge.js';
export type { MergedAdapter, SavedForm } from '../models/merged-adapter.js';
export type { ChosenFormat } from '../models/quantize.js';
export { type SaveOptions, saveDecoder } from '../models/save.js';
export { type GgufType, saveGguf } from '../models/save-gguf.js';
export type { ModelFiles } from '../models/saved.js';
export type { LayerHolders, ShardedLayers } from '../models/sharded-layers.js';
export type { DeviceInfo, DeviceStats } from '../native/addon.js';
export { DisposedError } from '../native/errors.js';
export { type BinaryItems, binaryCrossEntropy } from '../objectives/binary.js';
export {
  type DivergenceInputs,
  type DivergenceStatistic,
  divergence,
  type SampledDivergenceInputs,
  sampledDivergence,
} from '../objectives/divergence.js';
export { type KtoInputs, type KtoOptions, kto, ktoReference } from '../objectives/kto.js';
export { bce, crossEntropy } from '../objectives/likelihood.js';
export { nll } from '../objectives/nll.js';
export { type DpoOptions, type DpoPairs, dpo, orpo, type Pairs, pairwise } from '../objectives/pairs.js';
export { type KlEstimator, type PpoInputs, type PpoOptions, ppo, type Surrogate } from '../objectives/ppo.js';
export { type Objective, readStatistics, type Statistics } from '../objectives/statistics.js';
export {
  type JudgedAnswer,
  type LevelStatistic,
  type Span,
  type StepKtoInputs,
  type StepKtoLevel,
  type StepKtoOptions,
  type StepKtoStatistic,
  type StepReduction,
  stepKto,
} from '../objectives/step-kto.js';
export {
  type ConstraintForm,
  type VerdictConstraintInputs,
  verdictConstraint,
} from '../objectives/verdict-constraint.js';
export {
  type GaeOptions,
  type GroupBaseline,
  gae,
  groupAdvantages,
  spanSum,
  type WhitenOptions,
  whiten,
} from '../ops/advantage.js';
export type { RelativePositions } from '../ops/disentangled-attention.js';
export {
  combineExperts,
  type ExpertProjection,
  expertWeight,
  linearExperts,
  type RoutedAdapters,
  type Routing,
  route,
  type StackedExperts,
  stackWeight,
} from '../ops/experts.js';
export type { Dropout, LoraPair, StackedPairs } from '../ops/gemm.js';
export {
  type HeadLogprobs,
  type HeadOptions as LogprobOptions,
  headLogits,
  headLogprobs,
  headSelect,
} from '../ops/head.js';
export { cast, gatherRows, reshape } from '../ops/memory.js';
export type { HeadNorms } from '../ops/norm.js';
export type { Rotary, RotaryTable } from '../ops/rope.js';
export { type Ops, Tensor } from '../runtime/device.js';
export type { DType, TypedArray } from '../runtime/dtype.js';
export type { Graph, GraphPool } from '../runtime/graph.js';
export type { Made, OpsOf, Wanted } from '../runtime/op-types.js';
export {
  type BatchSchedule,
  type BatchSettings,
  groupBySize,
  scheduleBatches,
} from '../sequences/batching.js';
export {
  type ForwardSequence,
  type HiddenStates,
  hiddenStates,
  logprobsAt,
  type Rows,
  type ScoredRows,
  scalarsAt,
  scoreRows,
} from '../sequences/forward.js';
export {
  type AnswerPlace,
  type AnswerRow,
  type BranchedAnswer,
  type BranchedSequence,
  branchedSequence,
  maskedSequence,
  type Target,
  type TrainingSequence,
  type VerdictRows,
  type VerdictSequence,
  verdictSequence,
} from '../sequences/sequence.js';
export {
  type Segment,
  type SegmentRole,
  type SegmentSpan,
  type SegmentTokenizerOptions,
  type SequenceOptions,
  type StepSpan,
  segmentTokenizer,
  type TokenizedSequence,
} from '../tokenizer/segments.js';
export type { ChatTemplateOptions, DecodeOptions, EncodeOptions } from '../tokenizer/tokenizer.js';
export type { LoraConfig, TargetModules } from '../weights/adapter-config.js';
export type { FloatDtype } from '../weights/dtype.js';
export type { QuantizedName } from '../weights/gguf/quantize.js';
export type { JsonObject, JsonValue } from '../weights/json.js';
export type { LoraModule, LoraPlan, SavedWeight } from '../weights/lora-plan.js';
export type { ExpertPlace, Initializer, ModuleKind, WeightSpec } from '../weights/modules.js';
export type { MadeFormat, QuantizedFormat } from '../weights/quantized/format.js';
