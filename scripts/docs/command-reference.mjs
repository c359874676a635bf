// Writes docs/reference/commands.md: every command with its help, as `commandLine` of src/cli/cli.ts gives it.

const INTRODUCTION = `# Commands

<!-- Written by scripts/config-docs.mjs from the commands in src/cli; edit the descriptions there. -->

Exit codes: 0; 1 a mistake, in one sentence; 2 an error inside steptrain, with its stack; 130 interrupted. \`steptrain completion >> ~/.bashrc\` lets the
shell complete commands and options. \`STEPTRAIN_THREADS=N\` computes with N processor threads where nothing else says how many.
`;

const WIDTH = 100;

export async function commandReference(commandLine) {
  const parts = [INTRODUCTION];
  for (const path of await commandPaths(commandLine, [])) {
    const help = await helpOf(commandLine, path);
    parts.push(`## steptrain ${path.join(' ')}\n\n\`\`\`text\n${help}\n\`\`\`\n`);
  }
  return parts.join('\n');
}

/** Commands and their subcommands, as their help lists them. */
export async function commandPaths(commandLine, of) {
  // Only the list of commands is read: examples show options and arguments in the same place.
  const [, list = ''] = /^Commands:\n((?: .*\n)*)/m.exec(await helpOf(commandLine, of)) ?? [];
  const names = [
    ...list.matchAll(new RegExp(`^  steptrain ${[...of, '([a-z0-9-]+)'].join(' ')}(?: |$)`, 'gm')),
  ]
    .map((match) => match[1])
    .filter((name) => name !== 'completion');
  const paths = [];
  for (const name of new Set(names)) {
    const path = [...of, name];
    // A command of its own without subcommands shows itself, not a list.
    const below = of.length === 0 ? await commandPaths(commandLine, path) : [];
    paths.push(path, ...below);
  }
  return paths;
}

async function helpOf(commandLine, path) {
  return commandLine(path, { width: WIDTH }).getHelp();
}
