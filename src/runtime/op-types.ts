// Written by `npm run op-types` from the signatures in core/ops.cc.
import type { DType } from './dtype.js';

/** In the place of an optional output: a tensor to write into, or whether to make one. */
export type Wanted<Tensor> = Tensor | boolean | undefined;

/** What comes back for it. */
export type Made<Tensor, W extends Wanted<Tensor>> = W extends Tensor | true ? Tensor : undefined;

/** Every op by its name: inputs, scalars and outputs to write into go in by name, outputs come back by name. */
export interface OpsOf<Tensor> {
  /** pack_weight(w:F[N,K]; dtype:f32|bf16) -> y:@dtype[N,K] */
  pack_weight(args: { w: Tensor; dtype: DType; y?: Tensor | undefined }): { y: Tensor };

  /** unpack_weight(w:Q[N,K]; dtype:f32|bf16) -> y:@dtype[N,K] */
  unpack_weight(args: { w: Tensor; dtype: DType; y?: Tensor | undefined }): { y: Tensor };

  /** quantize(w:F[N,K]; format:nf4|nf4_double|int8, B:i) -> bytes:u8[B] */
  quantize(args: {
    w: Tensor;
    format: 'nf4' | 'nf4_double' | 'int8';
    B: number;
    bytes?: Tensor | undefined;
  }): { bytes: Tensor };

  /**
   * pack_quantized(bytes:u8[B]; format:nf4|nf4_double|int8|e4m3|e4m3_128|q4_0|q4_1|q4_k|q8_0, N:i, K:i) ->
   * y:%format[N,K]
   */
  pack_quantized(args: {
    bytes: Tensor;
    format: 'nf4' | 'nf4_double' | 'int8' | 'e4m3' | 'e4m3_128' | 'q4_0' | 'q4_1' | 'q4_k' | 'q8_0';
    N: number;
    K: number;
    y?: Tensor | undefined;
  }): { y: Tensor };

  /**
   * linear(x:F[T,K], w:Q[N,K], bias?:F[N], lora_a?:f32[r,K], lora_b?:f32[N,r], row_ids?:i32[T],
   * positions?:i32[T], stack_a?:W[S,K], stack_b?:W[N,S], adapter?:i32[T], ranks?:i32[G,2], scales?:f32[G],
   * residual?:=x[T,N]; scale:f=1, dropout:f=0, key0:i=0, key1:i=0) -> y:=x[T,N], u?:f32[T,r]
   */
  linear<U extends Wanted<Tensor> = undefined>(args: {
    x: Tensor;
    w: Tensor;
    bias?: Tensor | undefined;
    lora_a?: Tensor | undefined;
    lora_b?: Tensor | undefined;
    row_ids?: Tensor | undefined;
    positions?: Tensor | undefined;
    stack_a?: Tensor | undefined;
    stack_b?: Tensor | undefined;
    adapter?: Tensor | undefined;
    ranks?: Tensor | undefined;
    scales?: Tensor | undefined;
    residual?: Tensor | undefined;
    scale?: number | undefined;
    dropout?: number | undefined;
    key0?: number | undefined;
    key1?: number | undefined;
    y?: Tensor | undefined;
    u?: U;
  }): { y: Tensor; u: Made<Tensor, U> };

  /** stack_lora(a:f32[r,K], b:f32[N,r], &stack_a:W[S,K], &stack_b:W[N,S]; first:i) */
  stack_lora(args: { a: Tensor; b: Tensor; stack_a: Tensor; stack_b: Tensor; first: number }): void;

  /**
   * linear_qkv(x:F[T,K], w_q:Q[N,K], w_k:Q[M,K], w_v:Q[L,K], q_bias?:F[N], k_bias?:F[M], v_bias?:F[L],
   * q_a?:f32[r,K], q_b?:f32[N,r], k_a?:f32[s,K], k_b?:f32[M,s], v_a?:f32[t,K], v_b?:f32[L,t], norm?:F[K];
   * q_scale:f=1, k_scale:f=1, v_scale:f=1, eps:f=0) -> q:=x[T,N], k:=x[T,M], v:=x[T,L]
   */
  linear_qkv(args: {
    x: Tensor;
    w_q: Tensor;
    w_k: Tensor;
    w_v: Tensor;
    q_bias?: Tensor | undefined;
    k_bias?: Tensor | undefined;
    v_bias?: Tensor | undefined;
    q_a?: Tensor | undefined;
    q_b?: Tensor | undefined;
    k_a?: Tensor | undefined;
    k_b?: Tensor | undefined;
    v_a?: Tensor | undefined;
    v_b?: Tensor | undefined;
    norm?: Tensor | undefined;
    q_scale?: number | undefined;
    k_scale?: number | undefined;
    v_scale?: number | undefined;
    eps?: number | undefined;
    q?: Tensor | undefined;
    k?: Tensor | undefined;
    v?: Tensor | undefined;
  }): { q: Tensor; k: Tensor; v: Tensor };

  /**
   * linear_qkv_stack(x:F[T,K], w_q:Q[N,K], w_k:Q[M,K], w_v:Q[L,K], adapter:i32[T], q_bias?:F[N],
   * k_bias?:F[M], v_bias?:F[L], q_stack_a?:W[Q,K], q_stack_b?:W[N,Q], q_ranks?:i32[G,2], q_scales?:f32[G],
   * k_stack_a?:W[R,K], k_stack_b?:W[M,R], k_ranks?:i32[G,2], k_scales?:f32[G], v_stack_a?:W[S,K],
   * v_stack_b?:W[L,S], v_ranks?:i32[G,2], v_scales?:f32[G]) -> q:=x[T,N], k:=x[T,M], v:=x[T,L]
   */
  linear_qkv_stack(args: {
    x: Tensor;
    w_q: Tensor;
    w_k: Tensor;
    w_v: Tensor;
    adapter: Tensor;
    q_bias?: Tensor | undefined;
    k_bias?: Tensor | undefined;
    v_bias?: Tensor | undefined;
    q_stack_a?: Tensor | undefined;
    q_stack_b?: Tensor | undefined;
    q_ranks?: Tensor | undefined;
    q_scales?: Tensor | undefined;
    k_stack_a?: Tensor | undefined;
    k_stack_b?: Tensor | undefined;
    k_ranks?: Tensor | undefined;
    k_scales?: Tensor | undefined;
    v_stack_a?: Tensor | undefined;
    v_stack_b?: Tensor | undefined;
    v_ranks?: Tensor | undefined;
    v_scales?: Tensor | undefined;
    q?: Tensor | undefined;
    k?: Tensor | undefined;
    v?: Tensor | undefined;
  }): { q: Tensor; k: Tensor; v: Tensor };

  /**
   * linear_swiglu(x:F[T,K], w_gate:Q[N,K], w_up:Q[N,K], gate_a?:f32[r,K], gate_b?:f32[N,r], up_a?:f32[s,K],
   * up_b?:f32[N,s], row_ids?:i32[T], positions?:i32[T], norm?:F[K]; gate_scale:f=1, up_scale:f=1,
   * dropout:f=0, gate_key0:i=0, gate_key1:i=0, up_key0:i=0, up_key1:i=0, eps:f=0) -> y:=x[T,N],
   * gate?:=x[T,N], up?:=x[T,N], gate_u?:f32[T,r], up_u?:f32[T,s]
   */
  linear_swiglu<
    Gate extends Wanted<Tensor> = undefined,
    Up extends Wanted<Tensor> = undefined,
    GateU extends Wanted<Tensor> = undefined,
    UpU extends Wanted<Tensor> = undefined,
  >(args: {
    x: Tensor;
    w_gate: Tensor;
    w_up: Tensor;
    gate_a?: Tensor | undefined;
    gate_b?: Tensor | undefined;
    up_a?: Tensor | undefined;
    up_b?: Tensor | undefined;
    row_ids?: Tensor | undefined;
    positions?: Tensor | undefined;
    norm?: Tensor | undefined;
    gate_scale?: number | undefined;
    up_scale?: number | undefined;
    dropout?: number | undefined;
    gate_key0?: number | undefined;
    gate_key1?: number | undefined;
    up_key0?: number | undefined;
    up_key1?: number | undefined;
    eps?: number | undefined;
    y?: Tensor | undefined;
    gate?: Gate;
    up?: Up;
    gate_u?: GateU;
    up_u?: UpU;
  }): {
    y: Tensor;
    gate: Made<Tensor, Gate>;
    up: Made<Tensor, Up>;
    gate_u: Made<Tensor, GateU>;
    up_u: Made<Tensor, UpU>;
  };

  /**
   * linear_swiglu_stack(x:F[T,K], w_gate:Q[N,K], w_up:Q[N,K], adapter:i32[T], gate_stack_a?:W[R,K],
   * gate_stack_b?:W[N,R], gate_ranks?:i32[G,2], gate_scales?:f32[G], up_stack_a?:W[S,K], up_stack_b?:W[N,S],
   * up_ranks?:i32[G,2], up_scales?:f32[G]) -> y:=x[T,N]
   */
  linear_swiglu_stack(args: {
    x: Tensor;
    w_gate: Tensor;
    w_up: Tensor;
    adapter: Tensor;
    gate_stack_a?: Tensor | undefined;
    gate_stack_b?: Tensor | undefined;
    gate_ranks?: Tensor | undefined;
    gate_scales?: Tensor | undefined;
    up_stack_a?: Tensor | undefined;
    up_stack_b?: Tensor | undefined;
    up_ranks?: Tensor | undefined;
    up_scales?: Tensor | undefined;
    y?: Tensor | undefined;
  }): { y: Tensor };

  /**
   * linear_dx(dy:F[T,N], w:Q[N,K], lora_a?:f32[r,K], lora_b?:f32[N,r], row_ids?:i32[T], positions?:i32[T];
   * scale:f=1, dropout:f=0, key0:i=0, key1:i=0, accumulate:bool=false) -> dx:=dy[T,K], v?:f32[T,r]
   */
  linear_dx<V extends Wanted<Tensor> = undefined>(args: {
    dy: Tensor;
    w: Tensor;
    lora_a?: Tensor | undefined;
    lora_b?: Tensor | undefined;
    row_ids?: Tensor | undefined;
    positions?: Tensor | undefined;
    scale?: number | undefined;
    dropout?: number | undefined;
    key0?: number | undefined;
    key1?: number | undefined;
    accumulate?: boolean | undefined;
    dx?: Tensor | undefined;
    v?: V;
  }): { dx: Tensor; v: Made<Tensor, V> };

  /**
   * lora_grads(x:F[T,K], dy:F[T,N], u:f32[T,r], v:f32[T,r], &da:f32[r,K], &db:f32[N,r], row_ids?:i32[T],
   * positions?:i32[T]; scale:f=1, dropout:f=0, key0:i=0, key1:i=0)
   */
  lora_grads(args: {
    x: Tensor;
    dy: Tensor;
    u: Tensor;
    v: Tensor;
    da: Tensor;
    db: Tensor;
    row_ids?: Tensor | undefined;
    positions?: Tensor | undefined;
    scale?: number | undefined;
    dropout?: number | undefined;
    key0?: number | undefined;
    key1?: number | undefined;
  }): void;

  /** linear_dw(x:F[T,K], dy:F[T,N], &dw?:f32[N,K], &db?:f32[N]) */
  linear_dw(args: { x: Tensor; dy: Tensor; dw?: Tensor | undefined; db?: Tensor | undefined }): void;

  /**
   * attention(q:F[T,Hq,D], k:F[T,Hk,D], v:F[T,Hk,D], cu_seqlens:i32[B+1], branch?:i32[T]; causal:bool=true,
   * window:i=0, scale:f) -> o:=q[T,Hq,D], lse:f32[Hq,T]
   */
  attention(args: {
    q: Tensor;
    k: Tensor;
    v: Tensor;
    cu_seqlens: Tensor;
    branch?: Tensor | undefined;
    causal?: boolean | undefined;
    window?: number | undefined;
    scale: number;
    o?: Tensor | undefined;
    lse?: Tensor | undefined;
  }): { o: Tensor; lse: Tensor };

  /**
   * attention_backward(do:F[T,Hq,D], q:F[T,Hq,D], k:F[T,Hk,D], v:F[T,Hk,D], o:F[T,Hq,D], lse:f32[Hq,T],
   * cu_seqlens:i32[B+1], branch?:i32[T]; causal:bool=true, window:i=0, scale:f) -> dq:=q[T,Hq,D],
   * dk:=q[T,Hk,D], dv:=q[T,Hk,D]
   */
  attention_backward(args: {
    do: Tensor;
    q: Tensor;
    k: Tensor;
    v: Tensor;
    o: Tensor;
    lse: Tensor;
    cu_seqlens: Tensor;
    branch?: Tensor | undefined;
    causal?: boolean | undefined;
    window?: number | undefined;
    scale: number;
    dq?: Tensor | undefined;
    dk?: Tensor | undefined;
    dv?: Tensor | undefined;
  }): { dq: Tensor; dk: Tensor; dv: Tensor };

  /**
   * disentangled_attention(q:F[T,H,D], k:=q[T,H,D], v:=q[T,H,D], pos_q:=q[P,H,D], pos_k:=q[P,H,D],
   * buckets:i32[M], cu_seqlens:i32[B+1]; scale:f) -> o:=q[T,H,D], lse:f32[H,T]
   */
  disentangled_attention(args: {
    q: Tensor;
    k: Tensor;
    v: Tensor;
    pos_q: Tensor;
    pos_k: Tensor;
    buckets: Tensor;
    cu_seqlens: Tensor;
    scale: number;
    o?: Tensor | undefined;
    lse?: Tensor | undefined;
  }): { o: Tensor; lse: Tensor };

  /**
   * disentangled_attention_backward(do:F[T,H,D], q:=do[T,H,D], k:=do[T,H,D], v:=do[T,H,D], pos_q:=do[P,H,D],
   * pos_k:=do[P,H,D], o:=do[T,H,D], lse:f32[H,T], buckets:i32[M], cu_seqlens:i32[B+1]; scale:f) ->
   * dq:=q[T,H,D], dk:=q[T,H,D], dv:=q[T,H,D], dpos_q:=q[P,H,D], dpos_k:=q[P,H,D]
   */
  disentangled_attention_backward(args: {
    do: Tensor;
    q: Tensor;
    k: Tensor;
    v: Tensor;
    pos_q: Tensor;
    pos_k: Tensor;
    o: Tensor;
    lse: Tensor;
    buckets: Tensor;
    cu_seqlens: Tensor;
    scale: number;
    dq?: Tensor | undefined;
    dk?: Tensor | undefined;
    dv?: Tensor | undefined;
    dpos_q?: Tensor | undefined;
    dpos_k?: Tensor | undefined;
  }): { dq: Tensor; dk: Tensor; dv: Tensor; dpos_q: Tensor; dpos_k: Tensor };

  /**
   * cache_write(k:F[T,Hk,D], v:=k[T,Hk,D], slots:i32[T], &cache:=k[P,E], cos?:f32[M,h], sin?:f32[M,h],
   * positions?:i32[T], k_weight?:F[D], q?:=k[T,Hq,D], q_weight?:F[D]; eps:f=0) -> rotated?:=k[T,Hq,D]
   */
  cache_write<Rotated extends Wanted<Tensor> = undefined>(args: {
    k: Tensor;
    v: Tensor;
    slots: Tensor;
    cache: Tensor;
    cos?: Tensor | undefined;
    sin?: Tensor | undefined;
    positions?: Tensor | undefined;
    k_weight?: Tensor | undefined;
    q?: Tensor | undefined;
    q_weight?: Tensor | undefined;
    eps?: number | undefined;
    rotated?: Rotated;
  }): { rotated: Made<Tensor, Rotated> };

  /**
   * advance(tokens:i32[S], lengths:i32[S], rows:i32[R], pages:i32[R,N]) -> ids:i32[R], positions:i32[R],
   * slots:i32[R], next_lengths:i32[R]
   */
  advance(args: {
    tokens: Tensor;
    lengths: Tensor;
    rows: Tensor;
    pages: Tensor;
    ids?: Tensor | undefined;
    positions?: Tensor | undefined;
    slots?: Tensor | undefined;
    next_lengths?: Tensor | undefined;
  }): { ids: Tensor; positions: Tensor; slots: Tensor; next_lengths: Tensor };

  /** cache_copy(&cache:F[P,E], from:i32[C], to:i32[C]) */
  cache_copy(args: { cache: Tensor; from: Tensor; to: Tensor }): void;

  /**
   * attention_paged(q:F[T,Hq,D], cache:=q[P,E], query_offsets:i32[R+1], pages:i32[R,N], lengths:i32[R];
   * window:i=0, scale:f) -> o:=q[T,Hq,D]
   */
  attention_paged(args: {
    q: Tensor;
    cache: Tensor;
    query_offsets: Tensor;
    pages: Tensor;
    lengths: Tensor;
    window?: number | undefined;
    scale: number;
    o?: Tensor | undefined;
  }): { o: Tensor };

  /**
   * attention_step(q:F[R,Hq,D], k:=q[R,Hk,D], v:=q[R,Hk,D], &cache:=q[P,E], pages:i32[R,N], lengths:i32[R],
   * cos:f32[M,h], sin:f32[M,h], k_weight?:F[D], q_weight?:F[D]; eps:f=0, window:i=0, scale:f) -> o:=q[R,Hq,D]
   */
  attention_step(args: {
    q: Tensor;
    k: Tensor;
    v: Tensor;
    cache: Tensor;
    pages: Tensor;
    lengths: Tensor;
    cos: Tensor;
    sin: Tensor;
    k_weight?: Tensor | undefined;
    q_weight?: Tensor | undefined;
    eps?: number | undefined;
    window?: number | undefined;
    scale: number;
    o?: Tensor | undefined;
  }): { o: Tensor };

  /** rmsnorm(x:F[T,H], weight:F[H], residual?:=x[T,H]; eps:f) -> y:=x[T,H], sum?:=x[T,H], rstd:f32[T] */
  rmsnorm<Sum extends Wanted<Tensor> = undefined>(args: {
    x: Tensor;
    weight: Tensor;
    residual?: Tensor | undefined;
    eps: number;
    y?: Tensor | undefined;
    sum?: Sum;
    rstd?: Tensor | undefined;
  }): { y: Tensor; sum: Made<Tensor, Sum>; rstd: Tensor };

  /**
   * rmsnorm_backward(dy:F[T,H], sum:=dy[T,H], weight:F[H], rstd:f32[T], dsum?:=dy[T,H], &dweight?:f32[H]) ->
   * dx:=dy[T,H]
   */
  rmsnorm_backward(args: {
    dy: Tensor;
    sum: Tensor;
    weight: Tensor;
    rstd: Tensor;
    dsum?: Tensor | undefined;
    dweight?: Tensor | undefined;
    dx?: Tensor | undefined;
  }): { dx: Tensor };

  /**
   * layernorm(x:F[T,H], weight:F[H], bias?:F[H], residual?:=x[T,H]; eps:f) -> y:=x[T,H], sum?:=x[T,H],
   * mean:f32[T], rstd:f32[T]
   */
  layernorm<Sum extends Wanted<Tensor> = undefined>(args: {
    x: Tensor;
    weight: Tensor;
    bias?: Tensor | undefined;
    residual?: Tensor | undefined;
    eps: number;
    y?: Tensor | undefined;
    sum?: Sum;
    mean?: Tensor | undefined;
    rstd?: Tensor | undefined;
  }): { y: Tensor; sum: Made<Tensor, Sum>; mean: Tensor; rstd: Tensor };

  /**
   * layernorm_backward(dy:F[T,H], sum:=dy[T,H], weight:F[H], mean:f32[T], rstd:f32[T], dsum?:=dy[T,H],
   * &dweight?:f32[H], &dbias?:f32[H]) -> dx:=dy[T,H]
   */
  layernorm_backward(args: {
    dy: Tensor;
    sum: Tensor;
    weight: Tensor;
    mean: Tensor;
    rstd: Tensor;
    dsum?: Tensor | undefined;
    dweight?: Tensor | undefined;
    dbias?: Tensor | undefined;
    dx?: Tensor | undefined;
  }): { dx: Tensor };

  /** rope(x:F[T,Hq,D], cos:f32[P,E], sin:f32[P,E], positions:i32[T]; inverse:bool=false) -> y:=x[T,Hq,D] */
  rope(args: {
    x: Tensor;
    cos: Tensor;
    sin: Tensor;
    positions: Tensor;
    inverse?: boolean | undefined;
    y?: Tensor | undefined;
  }): { y: Tensor };

  /** swiglu(gate:F[T,N], up:=gate[T,N]) -> y:=gate[T,N] */
  swiglu(args: { gate: Tensor; up: Tensor; y?: Tensor | undefined }): { y: Tensor };

  /** swiglu_backward(dy:F[T,N], gate:=dy[T,N], up:=dy[T,N]) -> dgate:=dy[T,N], dup:=dy[T,N] */
  swiglu_backward(args: {
    dy: Tensor;
    gate: Tensor;
    up: Tensor;
    dgate?: Tensor | undefined;
    dup?: Tensor | undefined;
  }): { dgate: Tensor; dup: Tensor };

  /** gelu(x:F[#n]; tanh:bool=false) -> y:=x[#n] */
  gelu(args: { x: Tensor; tanh?: boolean | undefined; y?: Tensor | undefined }): { y: Tensor };

  /** gelu_backward(dy:F[#n], x:=dy[#n]; tanh:bool=false) -> dx:=dy[#n] */
  gelu_backward(args: { dy: Tensor; x: Tensor; tanh?: boolean | undefined; dx?: Tensor | undefined }): {
    dx: Tensor;
  };

  /** relu(x:F[#n]) -> y:=x[#n] */
  relu(args: { x: Tensor; y?: Tensor | undefined }): { y: Tensor };

  /** relu_backward(dy:F[#n], x:=dy[#n]) -> dx:=dy[#n] */
  relu_backward(args: { dy: Tensor; x: Tensor; dx?: Tensor | undefined }): { dx: Tensor };

  /** embedding(ids:i32[T], weight:W[V,H]; dtype:f32|bf16) -> y:@dtype[T,H] */
  embedding(args: { ids: Tensor; weight: Tensor; dtype: DType; y?: Tensor | undefined }): { y: Tensor };

  /** embedding_backward(dy:F[T,H], ids:i32[T], &dweight:f32[V,H]) */
  embedding_backward(args: { dy: Tensor; ids: Tensor; dweight: Tensor }): void;

  /**
   * head_logprobs(x:F[R,H], w:W[V,H], targets:i32[R]; temperature:f=1) -> logprobs:f32[R], entropy:f32[R],
   * lse:f32[R], argmax:i32[R], expectation?:f32[R,H]
   */
  head_logprobs<Expectation extends Wanted<Tensor> = undefined>(args: {
    x: Tensor;
    w: Tensor;
    targets: Tensor;
    temperature?: number | undefined;
    logprobs?: Tensor | undefined;
    entropy?: Tensor | undefined;
    lse?: Tensor | undefined;
    argmax?: Tensor | undefined;
    expectation?: Expectation;
  }): {
    logprobs: Tensor;
    entropy: Tensor;
    lse: Tensor;
    argmax: Tensor;
    expectation: Made<Tensor, Expectation>;
  };

  /**
   * head_expectation_backward(dlogprobs:f32[R], w:W[V,H], targets:i32[R], expectation:f32[R,H];
   * temperature:f=1, dtype:f32|bf16) -> dx:@dtype[R,H]
   */
  head_expectation_backward(args: {
    dlogprobs: Tensor;
    w: Tensor;
    targets: Tensor;
    expectation: Tensor;
    temperature?: number | undefined;
    dtype: DType;
    dx?: Tensor | undefined;
  }): { dx: Tensor };

  /**
   * head_logprobs_backward(dlogprobs:f32[R], dentropy?:f32[R], x:F[R,H], w:W[V,H], targets:i32[R],
   * lse:f32[R], entropy:f32[R], &dw?:f32[V,H]; temperature:f=1) -> dx:=x[R,H]
   */
  head_logprobs_backward(args: {
    dlogprobs: Tensor;
    dentropy?: Tensor | undefined;
    x: Tensor;
    w: Tensor;
    targets: Tensor;
    lse: Tensor;
    entropy: Tensor;
    dw?: Tensor | undefined;
    temperature?: number | undefined;
    dx?: Tensor | undefined;
  }): { dx: Tensor };

  /** head_select(x:F[R,H], w:W[V,H], tokens:i32[R,C]; temperature:f=1) -> logits:f32[R,C] */
  head_select(args: {
    x: Tensor;
    w: Tensor;
    tokens: Tensor;
    temperature?: number | undefined;
    logits?: Tensor | undefined;
  }): { logits: Tensor };

  /**
   * head_select_backward(dlogits:f32[R,C], x:F[R,H], w:W[V,H], tokens:i32[R,C], &dw?:f32[V,H];
   * temperature:f=1) -> dx:=x[R,H]
   */
  head_select_backward(args: {
    dlogits: Tensor;
    x: Tensor;
    w: Tensor;
    tokens: Tensor;
    dw?: Tensor | undefined;
    temperature?: number | undefined;
    dx?: Tensor | undefined;
  }): { dx: Tensor };

  /** head_logits(x:F[R,H], w:W[V,H]; temperature:f=1) -> logits:f32[R,V] */
  head_logits(args: {
    x: Tensor;
    w: Tensor;
    temperature?: number | undefined;
    logits?: Tensor | undefined;
  }): { logits: Tensor };

  /**
   * gae(rewards:f32[T], values:f32[T], cu_seqlens:i32[B+1], last_values?:f32[B]; gamma:f=1, lam:f=0.95) ->
   * advantages:f32[T], returns:f32[T]
   */
  gae(args: {
    rewards: Tensor;
    values: Tensor;
    cu_seqlens: Tensor;
    last_values?: Tensor | undefined;
    gamma?: number | undefined;
    lam?: number | undefined;
    advantages?: Tensor | undefined;
    returns?: Tensor | undefined;
  }): { advantages: Tensor; returns: Tensor };

  /** whiten(x:f32[T], mask?:f32[T]; bessel:bool=true, shift_mean:bool=true, eps:f=1e-8) -> y:f32[T] */
  whiten(args: {
    x: Tensor;
    mask?: Tensor | undefined;
    bessel?: boolean | undefined;
    shift_mean?: boolean | undefined;
    eps?: number | undefined;
    y?: Tensor | undefined;
  }): { y: Tensor };

  /**
   * group_advantages(rewards:f32[n], offsets:i32[G+1]; kind:grpo|mean|leave_one_out=grpo, eps:f=1e-4) ->
   * advantages:f32[n]
   */
  group_advantages(args: {
    rewards: Tensor;
    offsets: Tensor;
    kind?: 'grpo' | 'mean' | 'leave_one_out' | undefined;
    eps?: number | undefined;
    advantages?: Tensor | undefined;
  }): { advantages: Tensor };

  /** span_sum(x:f32[T], spans:i32[S,2], weights?:f32[S]; mean:bool=false) -> y:f32[S] */
  span_sum(args: {
    x: Tensor;
    spans: Tensor;
    weights?: Tensor | undefined;
    mean?: boolean | undefined;
    y?: Tensor | undefined;
  }): { y: Tensor };

  /** span_spread(dy:f32[S], spans:i32[S,2], weights?:f32[S]; T:i, mean:bool=false) -> dx:f32[T] */
  span_spread(args: {
    dy: Tensor;
    spans: Tensor;
    weights?: Tensor | undefined;
    T: number;
    mean?: boolean | undefined;
    dx?: Tensor | undefined;
  }): { dx: Tensor };

  /** nll(logprobs:f32[R], weights:f32[R]) -> loss:f32[1], dlogprobs:f32[R] */
  nll(args: {
    logprobs: Tensor;
    weights: Tensor;
    loss?: Tensor | undefined;
    dlogprobs?: Tensor | undefined;
  }): { loss: Tensor; dlogprobs: Tensor };

  /**
   * ppo(logprobs:f32[R], old_logprobs:f32[R], advantages:f32[R], weights:f32[R], ref_logprobs?:f32[R],
   * entropy?:f32[R], values?:f32[R], old_values?:f32[R], returns?:f32[R]; clip_low:f=0.2, clip_high:f=0.2,
   * kl_coef:f=0, kl:k1|k2|k3=k3, entropy_coef:f=0, vf_coef:f=0.1, value_clip:f=0) -> loss:f32[1],
   * dlogprobs:f32[R], dentropy?:f32[R], dvalues?:f32[R], stats:f32[12]
   */
  ppo<Dentropy extends Wanted<Tensor> = undefined, Dvalues extends Wanted<Tensor> = undefined>(args: {
    logprobs: Tensor;
    old_logprobs: Tensor;
    advantages: Tensor;
    weights: Tensor;
    ref_logprobs?: Tensor | undefined;
    entropy?: Tensor | undefined;
    values?: Tensor | undefined;
    old_values?: Tensor | undefined;
    returns?: Tensor | undefined;
    clip_low?: number | undefined;
    clip_high?: number | undefined;
    kl_coef?: number | undefined;
    kl?: 'k1' | 'k2' | 'k3' | undefined;
    entropy_coef?: number | undefined;
    vf_coef?: number | undefined;
    value_clip?: number | undefined;
    loss?: Tensor | undefined;
    dlogprobs?: Tensor | undefined;
    dentropy?: Dentropy;
    dvalues?: Dvalues;
    stats?: Tensor | undefined;
  }): {
    loss: Tensor;
    dlogprobs: Tensor;
    dentropy: Made<Tensor, Dentropy>;
    dvalues: Made<Tensor, Dvalues>;
    stats: Tensor;
  };

  /**
   * verdict_constraint(positive:f32[R], negative:f32[R], labels:i32[R], weights?:f32[R];
   * form:class_balanced|ce_two|ce_full|mass|margin|class_balanced_full=class_balanced_full, margin:f=1) ->
   * loss:f32[1], dpositive:f32[R], dnegative:f32[R], stats:f32[8]
   */
  verdict_constraint(args: {
    positive: Tensor;
    negative: Tensor;
    labels: Tensor;
    weights?: Tensor | undefined;
    form?: 'class_balanced' | 'ce_two' | 'ce_full' | 'mass' | 'margin' | 'class_balanced_full' | undefined;
    margin?: number | undefined;
    loss?: Tensor | undefined;
    dpositive?: Tensor | undefined;
    dnegative?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dpositive: Tensor; dnegative: Tensor; stats: Tensor };

  /**
   * pairwise(chosen:f32[n], rejected:f32[n], weights?:f32[n]; margin:f=0, center:f=0) -> loss:f32[1],
   * dchosen:f32[n], drejected:f32[n], stats:f32[4]
   */
  pairwise(args: {
    chosen: Tensor;
    rejected: Tensor;
    weights?: Tensor | undefined;
    margin?: number | undefined;
    center?: number | undefined;
    loss?: Tensor | undefined;
    dchosen?: Tensor | undefined;
    drejected?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dchosen: Tensor; drejected: Tensor; stats: Tensor };

  /**
   * dpo(chosen:f32[n], rejected:f32[n], ref_chosen?:f32[n], ref_rejected?:f32[n], weights?:f32[n];
   * beta:f=0.1, label_smoothing:f=0, margin:f=0, kind:sigmoid|ipo|hinge=sigmoid) -> loss:f32[1],
   * dchosen:f32[n], drejected:f32[n], stats:f32[4]
   */
  dpo(args: {
    chosen: Tensor;
    rejected: Tensor;
    ref_chosen?: Tensor | undefined;
    ref_rejected?: Tensor | undefined;
    weights?: Tensor | undefined;
    beta?: number | undefined;
    label_smoothing?: number | undefined;
    margin?: number | undefined;
    kind?: 'sigmoid' | 'ipo' | 'hinge' | undefined;
    loss?: Tensor | undefined;
    dchosen?: Tensor | undefined;
    drejected?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dchosen: Tensor; drejected: Tensor; stats: Tensor };

  /**
   * orpo(chosen:f32[n], rejected:f32[n], weights?:f32[n]; beta:f=0.1) -> loss:f32[1], dchosen:f32[n],
   * drejected:f32[n], stats:f32[4]
   */
  orpo(args: {
    chosen: Tensor;
    rejected: Tensor;
    weights?: Tensor | undefined;
    beta?: number | undefined;
    loss?: Tensor | undefined;
    dchosen?: Tensor | undefined;
    drejected?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dchosen: Tensor; drejected: Tensor; stats: Tensor };

  /** kto_reference(policy:f32[n], ref:f32[n]) -> z0:f32[1] */
  kto_reference(args: { policy: Tensor; ref: Tensor; z0?: Tensor | undefined }): { z0: Tensor };

  /**
   * kto(policy:f32[n], ref:f32[n], labels:i32[n], weights:f32[n], z0:f32[1]; beta:f=0.1, lambda_d:f=1,
   * lambda_u:f=1, kind:kto|apo_zero=kto) -> loss:f32[1], dpolicy:f32[n], stats:f32[4]
   */
  kto(args: {
    policy: Tensor;
    ref: Tensor;
    labels: Tensor;
    weights: Tensor;
    z0: Tensor;
    beta?: number | undefined;
    lambda_d?: number | undefined;
    lambda_u?: number | undefined;
    kind?: 'kto' | 'apo_zero' | undefined;
    loss?: Tensor | undefined;
    dpolicy?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dpolicy: Tensor; stats: Tensor };

  /**
   * step_kto(policy:f32[n], ref:f32[n], labels:i32[n], weights:f32[n], lengths:f32[n], z0:f32[2]; outcomes:i,
   * beta:f=0.1, beta_step:f=0.1, lambda_d:f=1, lambda_d_step:f=1, lambda_u:f=1, lambda_u_step:f=1) ->
   * loss:f32[1], dpolicy:f32[n], stats:f32[12]
   */
  step_kto(args: {
    policy: Tensor;
    ref: Tensor;
    labels: Tensor;
    weights: Tensor;
    lengths: Tensor;
    z0: Tensor;
    outcomes: number;
    beta?: number | undefined;
    beta_step?: number | undefined;
    lambda_d?: number | undefined;
    lambda_d_step?: number | undefined;
    lambda_u?: number | undefined;
    lambda_u_step?: number | undefined;
    loss?: Tensor | undefined;
    dpolicy?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dpolicy: Tensor; stats: Tensor };

  /** bce(logits:f32[n], labels:f32[n], weights:f32[n]) -> loss:f32[1], dlogits:f32[n], stats:f32[4] */
  bce(args: {
    logits: Tensor;
    labels: Tensor;
    weights: Tensor;
    loss?: Tensor | undefined;
    dlogits?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dlogits: Tensor; stats: Tensor };

  /**
   * cross_entropy(logits:f32[R,C], targets:i32[R], weights:f32[R]) -> loss:f32[1], dlogits:f32[R,C],
   * stats:f32[4]
   */
  cross_entropy(args: {
    logits: Tensor;
    targets: Tensor;
    weights: Tensor;
    loss?: Tensor | undefined;
    dlogits?: Tensor | undefined;
    stats?: Tensor | undefined;
  }): { loss: Tensor; dlogits: Tensor; stats: Tensor };

  /**
   * adamw(&params:f32[P], grads:f32[P], &exp_avg:f32[P], &exp_avg_sq:f32[P], sizes:i32[S],
   * weight_decay:f32[S], lr_scale?:f32[S]; lr:f, beta1:f=0.9, beta2:f=0.999, eps:f=1e-8, step:i,
   * max_norm:f=0, grad_scale:f=1) -> stats:f32[3]
   */
  adamw(args: {
    params: Tensor;
    grads: Tensor;
    exp_avg: Tensor;
    exp_avg_sq: Tensor;
    sizes: Tensor;
    weight_decay: Tensor;
    lr_scale?: Tensor | undefined;
    lr: number;
    beta1?: number | undefined;
    beta2?: number | undefined;
    eps?: number | undefined;
    step: number;
    max_norm?: number | undefined;
    grad_scale?: number | undefined;
    stats?: Tensor | undefined;
  }): { stats: Tensor };

  /** square_sums(x:f32[P], &sums:i32[C,2]) */
  square_sums(args: { x: Tensor; sums: Tensor }): void;

  /**
   * sample(logits:f32[R,V], keys:i32[R,4], temperature?:f32[R], top_k?:i32[R], top_p?:f32[R], min_p?:f32[R],
   * bias_offsets?:i32[R+1], bias_tokens?:i32[b], bias?:f32[b], allowed_offsets?:i32[R+1], allowed?:i32[A]) ->
   * tokens:i32[R], logprobs:f32[R], sampling_logprobs:f32[R], tempered_logprobs?:f32[R], status:i32[R]
   */
  sample<TemperedLogprobs extends Wanted<Tensor> = undefined>(args: {
    logits: Tensor;
    keys: Tensor;
    temperature?: Tensor | undefined;
    top_k?: Tensor | undefined;
    top_p?: Tensor | undefined;
    min_p?: Tensor | undefined;
    bias_offsets?: Tensor | undefined;
    bias_tokens?: Tensor | undefined;
    bias?: Tensor | undefined;
    allowed_offsets?: Tensor | undefined;
    allowed?: Tensor | undefined;
    tokens?: Tensor | undefined;
    logprobs?: Tensor | undefined;
    sampling_logprobs?: Tensor | undefined;
    tempered_logprobs?: TemperedLogprobs;
    status?: Tensor | undefined;
  }): {
    tokens: Tensor;
    logprobs: Tensor;
    sampling_logprobs: Tensor;
    tempered_logprobs: Made<Tensor, TemperedLogprobs>;
    status: Tensor;
  };

  /** copy(x:A[#n]) -> y:=x[#n] */
  copy(args: { x: Tensor; y?: Tensor | undefined }): { y: Tensor };

  /** cast(x:F[#n]; dtype:f32|bf16) -> y:@dtype[#n] */
  cast(args: { x: Tensor; dtype: DType; y?: Tensor | undefined }): { y: Tensor };

  /** fill(&x:A[#n]; value:f) */
  fill(args: { x: Tensor; value: number }): void;

  /** add(x:F[#n], y:=x[#n]) -> z:=x[#n] */
  add(args: { x: Tensor; y: Tensor; z?: Tensor | undefined }): { z: Tensor };

  /** scale(x:F[#n]; factor:f) -> y:=x[#n] */
  scale(args: { x: Tensor; factor: number; y?: Tensor | undefined }): { y: Tensor };

  /** axpy(&y:F[#n], x:F[#n]; factor:f) */
  axpy(args: { y: Tensor; x: Tensor; factor: number }): void;

  /** gather_rows(x:F[T,H], rows:i32[R]) -> y:=x[R,H] */
  gather_rows(args: { x: Tensor; rows: Tensor; y?: Tensor | undefined }): { y: Tensor };

  /** scatter_rows(x:F[R,H], rows:i32[R]; T:i) -> y:=x[T,H] */
  scatter_rows(args: { x: Tensor; rows: Tensor; T: number; y?: Tensor | undefined }): { y: Tensor };

  /** decode_f16(x:u8[b]; rows:i, cols:i, dtype:f32|bf16) -> y:@dtype[rows,cols] */
  decode_f16(args: { x: Tensor; rows: number; cols: number; dtype: DType; y?: Tensor | undefined }): {
    y: Tensor;
  };

  /** finite(x:F[#n]) -> stats:f32[2] */
  finite(args: { x: Tensor; stats?: Tensor | undefined }): { stats: Tensor };

  /** all_to_all(x:F[W,N], &y:=x[W,N]; communicator:i) */
  all_to_all(args: { x: Tensor; y: Tensor; communicator: number }): void;

  /** all_gather(x:F[N], &y:=x[W,N]; communicator:i) */
  all_gather(args: { x: Tensor; y: Tensor; communicator: number }): void;

  /** sum_slices(x:f32[R,N], pairs:i32[P,2]; root:i) -> y:f32[N] */
  sum_slices(args: { x: Tensor; pairs: Tensor; root: number; y?: Tensor | undefined }): { y: Tensor };
}
