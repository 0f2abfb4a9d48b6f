import type { Growth } from './growth.ts'
import { median } from './numbers.ts'
import type { Profile } from './profile.ts'
import type { Row, Sample } from './rows/row.ts'

/** A row's medians over all rounds. `ratio` is the median of the rounds' own ratios. */
export type Result = {
  name: string
  what: string
  unit: string
  value: number
  reference: number
  referenceIs: string
  ratio: number
  cpu: { ours: number; theirs: number } | null
  goal: string | null
  met: boolean | null
  samples: Sample[]
}

export function toResult(row: Row, samples: Sample[]): Result {
  const value = median(samples.map((sample) => sample.value))
  const ratio = median(samples.map((sample) => sample.value / sample.reference))
  const cpu = (which: 0 | 1) => median(samples.map((sample) => sample.cpu?.[which] ?? Number.NaN))
  const { goal } = row
  const reached = goal?.of === 'ratio' ? ratio : value
  return {
    name: row.name,
    what: row.what,
    unit: row.unit,
    value,
    reference: median(samples.map((sample) => sample.reference)),
    referenceIs: row.reference,
    ratio,
    cpu: Number.isNaN(cpu(0)) ? null : { ours: cpu(0), theirs: cpu(1) },
    goal: goal
      ? ('atLeast' in goal ? `≥ ${goal.atLeast}` : `≤ ${goal.atMost}`) + (goal.of === 'ratio' ? ' x' : '')
      : null,
    met: goal ? ('atLeast' in goal ? reached >= goal.atLeast : reached <= goal.atMost) : null,
    samples,
  }
}

const number = (value: number): string =>
  Number.isNaN(value) ? '-' : value.toLocaleString('en', { maximumFractionDigits: value < 20 ? 1 : 0 })

export function resultTable(results: readonly Result[]): string {
  const header = ['row', 'what', 'Muster', '', 'compared with', '', 'x', 'CPU µs', 'goal', '']
  const lines = results.map(({ name, what, value, unit, reference, referenceIs, ratio, cpu, goal, met }) => [
    name,
    what,
    number(value),
    unit,
    referenceIs,
    number(reference),
    ratio.toFixed(3),
    cpu ? `${number(cpu.ours)} / ${number(cpu.theirs)}` : '',
    goal ?? '',
    met === null ? '' : met ? 'met' : 'MISSED',
  ])
  return table([header, ...lines], [2, 5, 6, 7])
}

/** Parts below this share of every column are added up. */
const SMALL = 0.01

export function profileTable(profiles: readonly Profile[]): string {
  const largeParts = new Set(
    profiles.flatMap(({ micros, parts }) => parts.filter(([, part]) => part >= micros * SMALL).map(([part]) => part)),
  )
  const share = (profile: Profile, micros: number) =>
    `${number(micros)}  ${Math.round((micros / profile.micros) * 100)}%`
  const of = (profile: Profile, part: string) => profile.parts.find(([name]) => name === part)?.[1] ?? 0
  const rest = (profile: Profile) =>
    profile.parts.reduce((sum, [part, us]) => (largeParts.has(part) ? sum : sum + us), 0)
  const lines = [...largeParts]
    .map((part) => [part, ...profiles.map((profile) => share(profile, of(profile, part)))])
    .concat([['the rest', ...profiles.map((profile) => share(profile, rest(profile)))]])
  const total = ['all', ...profiles.map(({ micros }) => number(micros))]
  const header = ['where the time goes (µs a request)', ...profiles.map(({ name }) => name)]
  return table(
    [header, ...lines, total],
    profiles.map((_, index) => index + 1),
  )
}

/** Ratio from which a request counts as growing with the rows. */
const GROWS = 1.5

export function growthTable(sizes: readonly number[], grown: readonly Growth[]): string {
  const header = ['p50 (ms) by rows of everything', ...sizes.map(number), 'x', '']
  const lines = grown.map(({ name, ms }) => {
    const ratio = ms.at(-1)! / ms[0]!
    return [name, ...ms.map(number), ratio.toFixed(2), ratio > GROWS ? 'grows' : '']
  })
  return table([header, ...lines], [...sizes.map((_, index) => index + 1), sizes.length + 1])
}

/** Formats columns as wide as their widest cell, with two spaces between; the given ones align to the right. */
function table(rows: readonly (readonly string[])[], toTheRight: readonly number[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  const pad = (cell: string, column: number) =>
    toTheRight.includes(column) ? cell.padStart(widths[column]!) : cell.padEnd(widths[column]!)
  return rows.map((row) => row.map(pad).join('  ').trimEnd()).join('\n')
}
