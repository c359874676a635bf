/** A configuration that cannot be used. One sentence per problem, each on its own line. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly code = 'ERR_CONFIG';
}
