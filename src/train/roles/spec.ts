/** A role as a method says it: what the memory plan counts and `createRoles` opens. */
import type { AdapterHead } from '../../weights/adapter.js';

/** A role: an adapter on the shared base, or a model without LoRA. */
export interface RoleSpec {
  readonly role: string;
  /** `loaded`: a base as it is read. The one named `base` is shared: without LoRA the other roles are copies of its weights. */
  readonly held: 'trained' | 'frozen' | 'loaded';
  /** A frozen role copies this one as it is now. Default: the adapter that the run begins with. */
  readonly of?: string;
  /** The head that replaces the base's. It is trained in full, and saved as transformers and PEFT do. */
  readonly head?: AdapterHead | undefined;
  /** Whether a value head is trained with it. */
  readonly values?: boolean;
  /** A model of its own, whatever the others are; taken to be of the base's shape. */
  readonly whole?: boolean;
  /** Random stream of its first values. Default 0. */
  readonly stream?: number;
}
