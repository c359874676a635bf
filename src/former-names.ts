// All names came from the main entry once. They still do, for one release: scripts/build/former-names.mjs marks them in its types as
// deprecated, each with the entry that has it now.
export * from './ops.js';
export * from './train.js';
