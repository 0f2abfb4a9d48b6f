import { type ParseArgsConfig, parseArgs } from 'node:util'

/** Reads the options of a script. Prints its usage for `--help`, and with exit code 2 for an unknown option. */
export function readOptions<const Config extends ParseArgsConfig>(usage: string, config: Config) {
  try {
    const help = { help: { type: 'boolean', short: 'h' } } as const
    const parsed = parseArgs<Config>({ ...config, options: { ...config.options, ...help } })
    if (!('help' in parsed.values)) return parsed
    console.log(usage)
    process.exit(0)
  } catch (error) {
    // Node explains at length how to pass an argument that begins with a hyphen.
    console.error(`${(error as Error).message.split('. ')[0]}\n${usage}`)
    process.exit(2)
  }
}
