/** A server in a job: rank 0 asks it, and all have its answers, which would differ if each asked. */
import type { Cluster } from '../cluster/cluster.js';
import { foundOnce } from '../cluster/exchange.js';
import type { SampleSource } from '../generate/sample-source.js';

/** @param cluster absent: as it is */
export function askedOnce(source: SampleSource, cluster: Cluster | undefined): SampleSource {
  if (!cluster) return source;
  const isAsking = cluster.rank === 0;
  return {
    async begin(...round) {
      if (isAsking) await source.begin?.(...round);
    },
    async sample(prompts, options) {
      const found = await foundOnce(cluster, () => source.sample(prompts, options));
      if (isAsking) return found;
      found?.forEach((samples, prompt) => {
        samples.forEach((sample, i) => {
          if (!options.skip?.(prompt, i)) options.onSample?.(prompt, i, sample);
        });
      });
      return found;
    },
    publish: (adapter, iteration) => (isAsking ? source.publish(adapter, iteration) : Promise.resolve()),
    async publishWeights(decoder) {
      if (isAsking) await source.publishWeights?.(decoder);
    },
    close: () => source.close(),
  };
}
