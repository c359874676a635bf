/**
 * Processor seconds that a unit takes about, measured on a Xeon of 2.1 GHz with GCC 12. Forecasts begin with them and go over to
 * the speed that they see; of files that are not here they take an average.
 */
export const SECONDS = {
  'binding.cc': 8,
  'core.cc': 8,
  'cpu.cc': 13,
  'cpu_attention.cc': 14,
  'cpu_gemm.cc': 17,
  'cpu_head.cc': 7,
  'cpu/attention/disentangled_attention.cc': 4,
  'cpu/attention/disentangled_attention_backward.cc': 5,
  'cpu/runtime/backend.cc': 3,
  'cpu/runtime/event_count.cc': 1,
  'cpu/runtime/families.cc': 1,
  'cpu/runtime/thread_pool.cc': 1,
};
