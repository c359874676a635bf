/** Solutions sampled by all processes of a job: each draws those of its prompts, and all get all of them. */
import type { Cluster } from '../../cluster/cluster.js';
import type { SampledSolution, SolutionSampler } from './solution-sampler.js';

/** @param sampler whose samples depend on their prompt and number alone, so that it does not matter who draws them */
export function dividedSampler(sampler: SolutionSampler, cluster: Cluster): SolutionSampler {
  const { rank, size } = cluster;
  const isOwn = (prompt: number) => prompt % size === rank;
  return {
    async sample(prompts, round) {
      const { skip, onSample } = round;
      // Taken as they end: afterwards the caller has them, and what is returned in their place means nothing.
      const own: (readonly [prompt: number, sample: number, ended: SampledSolution])[] = [];
      if (prompts.some((_, prompt) => isOwn(prompt))) {
        const drawn = await sampler.sample(prompts, {
          ...round,
          skip: (prompt, i) => !isOwn(prompt) || skip?.(prompt, i) === true,
          onSample(prompt, i, ended) {
            own.push([prompt, i, ended]);
            onSample?.(prompt, i, ended);
          },
        });
        // The signal is that of all processes: it stops all or none.
        if (!drawn) return undefined;
      }
      const all = await cluster.gather(Buffer.from(JSON.stringify(own)));
      const found: SampledSolution[][] = prompts.map(() => []);
      all.forEach((bytes, other) => {
        for (const [prompt, i, ended] of JSON.parse(Buffer.from(bytes).toString()) as typeof own) {
          (found[prompt] as SampledSolution[])[i] = ended;
          if (other !== rank) onSample?.(prompt, i, ended);
        }
      });
      return found;
    },
  };
}
