/**
 * The parts of runs and evaluations: data, word problems, rewards, the loop of online learning and its plug-ins,
 * optimizer, judges, metrics and comparisons.
 *
 * @packageDocumentation
 */

export type { Equality, EqualityMethod, EqualityOptions } from '../answers/equal.js';
export type { ExtractionMethod, ExtractionOptions } from '../answers/extract.js';
export type { Locate } from '../config/issues.js';
export type { OptimizerInput } from '../config/optimizer.js';
export { secondPass } from '../corrections/assemble.js';
export {
  type CorrectionEvaluationOptions,
  evaluateCorrections,
} from '../corrections/evaluation/evaluate-corrections.js';
export type { HeldOutStep } from '../corrections/evaluation/prefixes.js';
export type { LayoutName } from '../data/benchmarks/layouts.js';
export type { LoadedProblems, ProblemOptions } from '../data/benchmarks/load.js';
export type { CorrectionFormat } from '../data/corrections/layout.js';
export type { CorrectionReading, CorrectionScope } from '../data/corrections/standing.js';
export { type Dataset, dataset, inMemory } from '../data/dataset.js';
export type { StepRows } from '../data/load.js';
export type { SeenSteps } from '../data/overlap.js';
export type { TemplateChoice } from '../data/problems/choices.js';
export type { Fact, Operation } from '../data/problems/facts.js';
export { type WordProblemOptions, wordProblems } from '../data/problems/generate.js';
export {
  isRightAnswer,
  type JudgedLine,
  type JudgedSolution,
  judgeSolution,
  judgeText,
  type StepError,
} from '../data/problems/oracle.js';
export type { Ending, Operand, PlannedStep, WordProblem } from '../data/problems/problem.js';
export {
  solutionRecord,
  type WordProblemRecordOptions,
  wordProblemRecords,
} from '../data/problems/records.js';
export {
  MISTAKES,
  type Mistake,
  type MistakeOptions,
  rightSolution,
  USUAL_MISTAKES,
} from '../data/problems/solution.js';
export type { Part } from '../data/split.js';
export {
  type JudgedRecord,
  type PlaceOptions,
  type SolutionVerdicts,
  type VerdictPlace,
  type VerdictPromptOptions,
  type VerdictTemplate,
  type VerdictTokenizer,
  verdictTokenizer,
} from '../data/verdict.js';
export type { AgentTurn, Environment, Opening, Task, TurnReply } from '../environments/environment.js';
export {
  type Episode,
  type EpisodeOptions,
  type EpisodeTurn,
  episodeRow,
  runEpisodes,
} from '../environments/episodes.js';
export { openEnvironment } from '../environments/open.js';
export { type ComparedMetric, type Comparison, compareVerdicts } from '../eval/comparison.js';
export { type EvaluationOptions, evaluateVerdicts, verdictMetrics } from '../eval/evaluate-verdicts.js';
export type { GroupMetrics, GroupsMetrics } from '../eval/groups.js';
export type { LikelihoodVerdicts } from '../eval/likelihood-weights.js';
export type { VerdictRow } from '../eval/reports/dump.js';
export type { NetworkReport, OutcomeReport } from '../eval/reports/eval-report.js';
export type { LikelihoodReport } from '../eval/reports/likelihood-report.js';
export type { Aggregation } from '../eval/solving/aggregation.js';
export {
  compareSolving,
  formatSolvingComparison,
  type SolvingComparison,
  type SolvingDifference,
} from '../eval/solving/comparison.js';
export type { CorrectionReport, OutputMetrics, PrefixMetrics } from '../eval/solving/corrections.js';
export { readSolvedProblems, type SolvedProblem } from '../eval/solving/dump.js';
export type { EqualTokenVotes } from '../eval/solving/equal-tokens.js';
export type { SolvingProgress } from '../eval/solving/evaluate-solving.js';
export type { MetricOptions, MetricValue } from '../eval/solving/metrics.js';
export type { SolvedGroups, SolvedReport } from '../eval/solving/run-report.js';
export type { DrawnSample, GradedSample, SamplePlace, SolvingSample } from '../eval/solving/sample.js';
export type { SearchSettings } from '../eval/solving/search.js';
export type { SolvingSamplingOptions } from '../eval/solving/settings.js';
export type { SolvedGroup } from '../eval/solving/solving-report.js';
export type { BootstrapOptions, IntervalMetric, Intervals } from '../eval/statistics/bootstrap.js';
export type { Calibration, ReliabilityBin } from '../eval/statistics/calibration.js';
export type { McNemar } from '../eval/statistics/mcnemar.js';
export {
  type Baselines,
  baselineMetrics,
  type ConfusionMetrics,
  rocAuc,
  type VerdictMetrics,
} from '../eval/statistics/metrics.js';
export type { Difference, Differences } from '../eval/statistics/paired.js';
export type {
  KnownProcessBenchScore,
  ProcessBenchReport,
  ProcessBenchScore,
} from '../eval/statistics/solutions.js';
export type { MeanInterval } from '../eval/statistics/student.js';
export type {
  ChosenThreshold,
  ScoredStep,
  ThresholdRow,
  ThresholdSweep,
} from '../eval/statistics/thresholds.js';
export type { StepErrorMetrics, StepErrors, Told } from '../eval/step-errors.js';
export type { SureReport } from '../eval/sure.js';
export type { SolvingPromptOptions } from '../generate/solving-prompt.js';
export type { HubSettings } from '../hub/settings.js';
export { ALGORITHMS, type Algorithm } from '../methods/ppo/algorithms.js';
export { type ResumeRunOptions, resume, type TrainOptions, type TrainResult, train } from '../methods/run.js';
export type { InputOf, RunConfig, RunConfigInput } from '../methods/table.js';
export type { OptionsOf } from '../native/defined.js';
export {
  MESSAGE_EXTRAS,
  type Message,
  type MessageExtras,
  type Provenance,
  type StepKind,
  type VerdictSample,
  verdictSamples,
} from '../records/record.js';
export { type Segmentation, type SegmentedStep, segmentSteps } from '../records/segment.js';
export type { ToolCall, Turns } from '../records/turns.js';
export { ChatClient, type ChatClientOptions, type ChatReply, type ChatSettings } from '../remote/chat.js';
export { RemoteError } from '../remote/errors.js';
export { type RemoteSourceOptions, remoteSource } from '../remote/remote-source.js';
export { writeReport } from '../report/write.js';
export { type FunctionRewardOptions, functionReward, type RewardFunction } from '../rewards/function.js';
export {
  type MixedReward,
  type MixtureOptions,
  mixedRewards,
  type RewardMoments,
  type RewardPart,
  type SourceWeight,
  type WeightedSource,
} from '../rewards/mixture.js';
export { boundedSteps, type StepBound, stepEnds } from '../rewards/placement.js';
export type { RewardedSolution, SolutionReward, SourceReward } from '../rewards/reward.js';
export { answerReward, formatReward, lengthReward } from '../rewards/rules.js';
export { type StepRewardOptions, stepScoreReward } from '../rewards/step-scores.js';
export { fetchModel } from '../run/resolve-saved.js';
export { cascade } from '../scoring/cascade.js';
// Scoring
export { type ClassifierScorerOptions, classifierScorer } from '../scoring/classifier.js';
export { labelFile, scoreFile } from '../scoring/files.js';
export { functionScorer, type ScoreFunction } from '../scoring/functions.js';
export { judgeWarnings, unlikeTraining } from '../scoring/judge.js';
export type { OpenScorers, ScoringOptions } from '../scoring/kinds.js';
export { type OpenScorerOptions, openScorer, openScorers, type ScorerSource } from '../scoring/open.js';
export { oracleScorer } from '../scoring/oracle.js';
export type { ReadingOptions } from '../scoring/readable.js';
export {
  type RewardModelScorerOptions,
  type RewardModelSettings,
  rewardModelScorer,
} from '../scoring/reward-model/scorer.js';
export { type RewardScorerOptions, rewardScorer } from '../scoring/reward-network/scorer.js';
export type { UnlikeTraining } from '../scoring/scorer.js';
export {
  probabilityOf,
  type Scorer,
  type Solution,
  type SolutionScores,
  scorer,
  type Verdicts,
  verdictsOf,
} from '../scoring/scorer.js';
export { type LlmJudge, type LlmJudgeOptions, type LlmJudgeReport, llmJudge } from '../scoring/server/llm.js';
export type { LikelihoodWeights } from '../scoring/settings.js';
export type { JudgedStep, JudgedVerdict } from '../scoring/verdict/judged.js';
export { type VerdictScorerOptions, verdictScorer } from '../scoring/verdict/scorer.js';
export { type JudgeOptions, judgeVerdicts } from '../scoring/verdict/verdicts.js';
export type { Served } from '../serve/engine.js';
export type { ServeLimits } from '../serve/limits.js';
export type {
  Arm as SweepArm,
  Column as SweepColumn,
  Settings as SweepSettings,
  Sweep,
} from '../sweep/file.js';
export type {
  ArmSummary as SweepArmSummary,
  ColumnSummary as SweepColumnSummary,
  Difference as SweepDifference,
  SweepSummary,
  Trial as SweepTrial,
} from '../sweep/summary.js';
export { runSweepFile, type SweepFileOptions, type SweepRunEvent } from '../sweep/sweep-file.js';
export type { Log, ProgressStream } from '../terminal/log.js';
export type { ProgressPart } from '../terminal/progress.js';
export { AdamW, type AdamWOptions, type Moments, type OptimizerStep } from '../train/adamw.js';
export { type GaeSettings, gaeAdvantage } from '../train/policy/advantage.js';
export { KlControl, type KlSettings, klEstimate, withKlPenalty } from '../train/policy/kl.js';
export type {
  Advantage,
  Answer,
  AnswerReward,
  Credit,
  CreditedGroup,
  Group,
  OwnOptimizer,
  PolicyGradients,
  PolicyObjective,
  RewardSource,
  Rewards,
  RolloutBatch,
  RolloutSource,
} from '../train/policy/records.js';
export {
  type PolicyParts,
  type PolicySettings,
  type PolicyStageOptions,
  policyStage,
} from '../train/policy/stage.js';
export type { EndedRun, RunResult } from '../train/result.js';
export { learningRateAt, type ScheduleOptions } from '../train/schedule.js';
export type { RunEnvironment } from '../train/solutions/episodes.js';
export { type LocalSolutionsOptions, localSolutions } from '../train/solutions/local-solutions.js';
export { type MixOptions, mixedBatches } from '../train/solutions/mix.js';
export { type ConfiguredProblems, configuredProblems, type RunProblem } from '../train/solutions/problems.js';
export {
  type SolutionPrompt,
  type SolutionPromptOptions,
  type SolutionPrompts,
  solutionPrompts,
} from '../train/solutions/prompts.js';
export type {
  SampledSolution,
  SamplingRound,
  SolutionSource,
  SolutionTurns,
} from '../train/solutions/solution-source.js';
export type {
  Metrics,
  OpenTraining,
  SaveSettings,
  TrainingOutcome,
  TrainingSettings,
  TrainingStage,
} from '../train/stage.js';
export { applyGradients, type Update } from '../train/update.js';
