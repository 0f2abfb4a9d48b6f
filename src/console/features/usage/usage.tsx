import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Gauge } from 'lucide-react'
import { type ReactNode, useEffect, useMemo, useRef, useState } from 'react'
import uPlot from 'uplot'
import type { Output } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { Empty, Loaded, Page, Section } from '../../components/page.tsx'
import { now } from '../../lib/clock.ts'
import { count, short, utcDay } from '../../lib/format.ts'
import { periodsBetween, toDate } from '../../lib/periods.ts'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { useIsDark } from '../../theme.ts'
import { AgentName, useAgentNames, useMembers } from '../agents/names.ts'

const t = texts.usage

type Entry = Output<'usage.get'>['usage'][number]
type Amounts = Pick<Entry, 'executions' | 'failed' | 'input_tokens' | 'output_tokens'>

const DAY = 86_400_000

/** Returns a name of the URL if it is one of a list. */
const oneOf = <Name extends string>(names: Readonly<Record<Name, string>>, name: string | undefined, other: Name) =>
  name !== undefined && Object.hasOwn(names, name) ? (name as Name) : other

/** The usage of the organization's runs. */
export function Usage() {
  const { organization } = useSession()
  const navigate = useNavigate({ from: '/usage' })
  const search = useSearch({ from: '/usage' })
  const period = oneOf(t.periods, search.period, 'daily')
  const range = oneOf(t.ranges, search.start, '30')
  const end = toDate(now())
  const start = toDate(now() - (Number(range) - 1) * DAY)
  const usage = useQuery({
    ...query('usage.get', { orgId: organization?.id ?? '', period, start, end }),
    refetchInterval: 30_000,
  })
  return (
    <Page
      title={t.title}
      actions={
        <>
          <Picker
            label={t.range}
            options={t.ranges}
            value={range}
            onChange={(value) => void navigate({ search: (before) => ({ ...before, start: value }), replace: true })}
          />
          <Picker
            label={t.period}
            options={t.periods}
            value={period}
            onChange={(value) => void navigate({ search: (before) => ({ ...before, period: value }), replace: true })}
          />
        </>
      }
    >
      <Loaded query={usage}>
        {({ usage: entries, totals }) =>
          entries.length === 0 ? (
            <Empty icon={Gauge} title={t.emptyTitle} text={t.emptyText} />
          ) : (
            <>
              <dl className="mb-6 grid grid-cols-2 gap-px overflow-hidden rounded-xl border border-line bg-line sm:grid-cols-4">
                {(
                  [
                    [t.runs, totals.executions],
                    [t.failed, totals.failed],
                    [t.input, totals.input_tokens],
                    [t.output, totals.output_tokens],
                  ] as const
                ).map(([name, value]) => (
                  <div key={name} className="bg-canvas px-4 py-3">
                    <dt className="text-soft">{name}</dt>
                    <dd className="font-semibold text-xl tabular-nums" title={count(value)}>
                      {short(value)}
                    </dd>
                  </div>
                ))}
              </dl>
              <OverTime entries={entries} dates={periodsBetween(period, start, end)} />
              <Parts entries={entries} />
            </>
          )
        }
      </Loaded>
    </Page>
  )
}

const former = (id: string) => `${texts.chat.formerMember} (${id.slice(0, 6)})`

function Parts({ entries }: { entries: readonly Entry[] }) {
  const agents = sum(entries.flatMap(({ byAgent }) => byAgent.map((each) => ({ key: each.agentId, ...each }))))
  const people = useMembers()
  const names = new Map(people.data?.members.map(({ userId, name }) => [userId, name]))
  const users = sum(entries.flatMap(({ byUser }) => byUser.map((each) => ({ key: each.userId ?? '', ...each }))))
  const models = sum(entries.flatMap(({ byModel }) => byModel.map((each) => ({ key: each.model ?? '', ...each }))))
  return (
    <>
      <Section title={t.byAgent}>
        <Table head={t.agent} rows={agents.map((row) => ({ ...row, name: <AgentName id={row.key} /> }))} />
      </Section>
      <Section title={t.byModel}>
        <Table head={t.model} rows={models.map((row) => ({ ...row, name: row.key || t.unknownModel }))} />
      </Section>
      <Section title={t.byUser}>
        <Table
          head={t.user}
          rows={users.map((row) => ({
            ...row,
            name: row.key ? (names.get(row.key) ?? former(row.key)) : t.unknownUser,
          }))}
        />
      </Section>
    </>
  )
}

/** Adds up rows with the same key, most tokens first. */
function sum(rows: readonly (Amounts & { key: string })[]): (Amounts & { key: string })[] {
  const byKey = new Map<string, Amounts & { key: string }>()
  for (const row of rows) {
    const before = byKey.get(row.key)
    byKey.set(row.key, {
      key: row.key,
      executions: row.executions + (before?.executions ?? 0),
      failed: row.failed + (before?.failed ?? 0),
      input_tokens: row.input_tokens + (before?.input_tokens ?? 0),
      output_tokens: row.output_tokens + (before?.output_tokens ?? 0),
    })
  }
  const tokens = (row: Amounts) => row.input_tokens + row.output_tokens
  return [...byKey.values()].sort((a, b) => tokens(b) - tokens(a) || b.executions - a.executions)
}

type Row = Amounts & { key: string; name: ReactNode }

/** Number of rows of a table that are drawn at a time. */
const MAX_ROWS = 100

/** The first rows of a table, and a button for more. */
function Table({ head, rows }: { head: string; rows: readonly Row[] }) {
  const [most, setMost] = useState(MAX_ROWS)
  return (
    // The keyboard must reach scrolling regions.
    <div tabIndex={0} role="region" aria-label={head} className="max-h-96 overflow-auto rounded-xl border border-line">
      <table className="w-full">
        <thead className="sticky top-0 bg-panel text-soft text-xs">
          <tr>
            <th className="px-4 py-2 text-left font-normal">{head}</th>
            {[t.runs, t.failed, t.input, t.output].map((name) => (
              <th key={name} className="px-4 py-2 text-right font-normal">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, most).map((row) => (
            <tr key={row.key} className="border-line border-t">
              <td className="max-w-60 truncate px-4 py-2">
                <bdi>{row.name}</bdi>
              </td>
              {[row.executions, row.failed, row.input_tokens, row.output_tokens].map((value, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns have no other name
                <td key={index} className="px-4 py-2 text-right tabular-nums">
                  {count(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > most && (
        <p className="border-line border-t p-2 text-center">
          <Button small onClick={() => setMost(most + MAX_ROWS)}>
            {texts.more}
          </Button>
        </p>
      )}
    </div>
  )
}

const NOTHING = { executions: 0, failed: 0, input_tokens: 0, output_tokens: 0, byAgent: [], byModel: [], byUser: [] }

type Line = { name: string; colour: string; values: readonly number[] }

/** Distances between the lines of a chart's axis, from 1 to 5 × 10¹⁵: its values are whole numbers. */
const WHOLE_STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat()

/** Most lines of a chart; the rest is one line. */
const MAX_LINES = 5
const COLOURS = ['--color-accent', '--color-good', '--color-warn', '--color-danger', '--color-edge', '--color-soft']

type Parts = (entry: Entry) => readonly (Amounts & { key: string })[]

const PARTS: Readonly<Record<Exclude<By, 'tokens'>, Parts>> = {
  agent: ({ byAgent }) => byAgent.map((each) => ({ key: each.agentId, ...each })),
  model: ({ byModel }) => byModel.map((each) => ({ key: each.model ?? '', ...each })),
  user: ({ byUser }) => byUser.map((each) => ({ key: each.userId ?? '', ...each })),
}

type By = keyof typeof t.splits

const tokensOf = ({ input_tokens, output_tokens }: Amounts) => input_tokens + output_tokens

/** The tokens of each period as a chart, whole or by agent, model or user, and as a table. */
function OverTime({ entries, dates }: { entries: readonly Entry[]; dates: readonly string[] }) {
  const [by, setBy] = useState<By>('tokens')
  const keys = useMemo(
    () => (by === 'tokens' ? [] : sum(entries.flatMap(PARTS[by])).map(({ key }) => key)),
    [entries, by],
  )
  const nameOf = useAgentNames(by === 'agent' ? keys.slice(0, MAX_LINES) : [])
  const people = useMembers()
  const days = dates.join()
  const lines = useMemo((): Line[] => {
    const byDate = new Map(entries.map((entry) => [entry.date, entry]))
    // The report leaves out periods without runs.
    const all = days.split(',').map((date) => byDate.get(date) ?? { ...NOTHING, date })
    if (by === 'tokens') {
      return [
        { name: t.input, colour: '--color-accent', values: all.map(({ input_tokens }) => input_tokens) },
        { name: t.output, colour: '--color-good', values: all.map(({ output_tokens }) => output_tokens) },
      ]
    }
    const partsOf = PARTS[by]
    const user = (id: string) => people.data?.members.find(({ userId }) => userId === id)?.name ?? former(id)
    const names = {
      agent: nameOf,
      model: (id: string) => id || t.unknownModel,
      user: (id: string) => (id ? user(id) : t.unknownUser),
    }
    const ofKeys = (some: readonly string[]) => {
      const wanted = new Set(some)
      return all.map((entry) =>
        partsOf(entry).reduce((tokens, part) => tokens + (wanted.has(part.key) ? tokensOf(part) : 0), 0),
      )
    }
    const lines = keys.slice(0, MAX_LINES).map((key, index) => ({
      name: names[by](key),
      colour: COLOURS[index] ?? '',
      values: ofKeys([key]),
    }))
    const rest = keys.slice(MAX_LINES)
    if (!rest.length) return lines
    return [...lines, { name: t.others, colour: COLOURS[MAX_LINES] ?? '', values: ofKeys(rest) }]
  }, [entries, days, by, keys, nameOf, people.data])
  return (
    <Section
      title={t.overTime}
      actions={<Picker label={t.split} options={t.splits} value={by} onChange={(value) => setBy(value as By)} />}
    >
      <Chart dates={dates} lines={lines} />
      <ul className="mb-4 flex flex-wrap gap-x-4 gap-y-1 text-xs">
        {lines.map(({ name, colour }) => (
          <li key={colour} className="flex min-w-0 items-center gap-1.5">
            <span aria-hidden className="mark size-2.5 shrink-0 rounded-sm" style={{ background: `var(${colour})` }} />
            <bdi className="truncate">{name}</bdi>
          </li>
        ))}
      </ul>
      <Table
        head={t.date}
        rows={entries.toReversed().map((entry) => ({ key: entry.date, name: entry.date, ...entry }))}
      />
    </Section>
  )
}

/** Lines over time, with a dot for each period if there is room for it. */
function Chart({ dates, lines }: { dates: readonly string[]; lines: readonly Line[] }) {
  const box = useRef<HTMLDivElement>(null)
  const isDark = useIsDark()
  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours change with the theme
  useEffect(() => {
    const element = box.current
    if (!element) return
    // A canvas does not support light-dark(), but an element of that colour does.
    const probe = element.appendChild(document.createElement('span'))
    const resolve = (name: string) => {
      probe.style.color = `var(${name})`
      return getComputedStyle(probe).color
    }
    const [ink, line] = [resolve('--color-soft'), resolve('--color-line')]
    const series = lines.map(({ name, colour }) => {
      const stroke = resolve(colour)
      return {
        label: name,
        stroke,
        width: 2,
        points: { size: 6, fill: stroke, ...(dates.length === 1 && { show: true }) },
      }
    })
    probe.remove()
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false } }
    const width = () => element.clientWidth - 24
    const plot = new uPlot(
      {
        width: width(),
        height: 220,
        legend: { show: false },
        scales: {
          x: { time: true },
          y: { range: (_, __, most) => [0, Math.max(1, most) * 1.1] },
        },
        // Periods are days of UTC.
        tzDate: (at) => uPlot.tzDate(new Date(at * 1_000), 'Etc/UTC'),
        axes: [
          { ...axis, values: (_, values) => values.map((at) => utcDay(at * 1_000)) },
          { ...axis, size: 60, incrs: WHOLE_STEPS, values: (_, values) => values.map((value) => short(value)) },
        ],
        series: [{}, ...series],
      },
      [dates.map((day) => Date.parse(day) / 1_000), ...lines.map(({ values }) => [...values])],
      element,
    )
    const observer = new ResizeObserver(() => plot.setSize({ width: width(), height: 220 }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [dates.join(), lines, isDark])
  return (
    <div ref={box} role="img" aria-label={t.chart} className="mb-2 overflow-hidden rounded-xl border border-line p-3" />
  )
}

function Picker({
  label,
  options,
  value,
  onChange,
}: {
  label: string
  options: Readonly<Record<string, string>>
  value: string
  onChange: (value: string) => void
}) {
  return (
    <select aria-label={label} className="field w-auto" value={value} onChange={({ target }) => onChange(target.value)}>
      {Object.entries(options).map(([name, text]) => (
        <option key={name} value={name}>
          {text}
        </option>
      ))}
    </select>
  )
}
