import { ASKED } from './asked.ts'
import { type Filled, startFilled } from './filled.ts'
import type { Lab } from './lab.ts'
import { median, time } from './numbers.ts'

/** Duration of a request (ms, p50) by the number of rows in its organization. */
export type Growth = { name: string; ms: number[] }

/** Measures every request at every size in turn, for a number of rounds. */
export async function growth(lab: Lab, sizes: readonly number[], repeats: number): Promise<Growth[]> {
  const filled: Filled[] = []
  for (const size of sizes) {
    process.stderr.write(`\r\x1b[Kgrowth: ${size.toLocaleString('en')} rows of everything`)
    filled.push(await startFilled(lab, size))
  }
  const found: Growth[] = []
  for (const [name, ask] of ASKED) {
    process.stderr.write(`\r\x1b[Kgrowth: ${name}`)
    const samples: number[][] = sizes.map(() => [])
    for (let round = 0; round <= repeats; round++) {
      for (const [index, each] of filled.entries()) {
        const ms = await time(() => ask(each, round))
        // The first round warms up.
        if (round) samples[index]!.push(ms)
      }
    }
    found.push({ name, ms: samples.map(median) })
  }
  for (const { service } of filled) await service.stop()
  process.stderr.write('\r\x1b[K')
  return found
}
