import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Gauge } from 'lucide-react'
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import type { Output } from '../../api.ts'
import { Empty, Loaded, Page, Section } from '../../components/page.tsx'
import { count, short } from '../../lib/format.ts'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { useAgentNames } from '../agents/names.ts'

const t = texts.usage

type Entry = Output<'usage.get'>['usage'][number]
type Amounts = Pick<Entry, 'executions' | 'failed' | 'input_tokens' | 'output_tokens'>
type Period = Output<'usage.get'>['period']

const DAY = 86_400_000
const date = (time: number) => new Date(time).toISOString().slice(0, 10)

/** What the runs of the organization used. */
export function Usage() {
  const { organization } = useSession()
  const navigate = useNavigate({ from: '/usage' })
  const search = useSearch({ from: '/usage' })
  const period = (search.period ?? 'daily') as Period
  const range = search.start ?? '30'
  const end = date(Date.now())
  const start = date(Date.now() - (Number(range) - 1) * DAY)
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
              <Section title={t.overTime}>
                <Chart entries={entries} from={start} to={end} />
                <Table
                  head={t.date}
                  rows={entries.toReversed().map((entry) => ({ key: entry.date, name: entry.date, ...entry }))}
                />
              </Section>
              <Parts entries={entries} />
            </>
          )
        }
      </Loaded>
    </Page>
  )
}

function Parts({ entries }: { entries: readonly Entry[] }) {
  const nameOf = useAgentNames()
  const agents = sum(entries.flatMap(({ byAgent }) => byAgent.map((each) => ({ key: each.agentId, ...each }))))
  const models = sum(entries.flatMap(({ byModel }) => byModel.map((each) => ({ key: each.model ?? '', ...each }))))
  return (
    <>
      <Section title={t.byAgent}>
        <Table head={t.agent} rows={agents.map((row) => ({ ...row, name: nameOf(row.key) }))} />
      </Section>
      <Section title={t.byModel}>
        <Table head={t.model} rows={models.map((row) => ({ ...row, name: row.key || t.unknownModel }))} />
      </Section>
    </>
  )
}

/** Adds up what has the same key, the most tokens first. */
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

type Row = Amounts & { key: string; name: string }

const Table = ({ head, rows }: { head: string; rows: readonly Row[] }) => (
  // What scrolls must be reached with the keyboard.
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
        {rows.map((row) => (
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
  </div>
)

/** The tokens of each period, input and output. */
function Chart({ entries, from, to }: { entries: readonly Entry[]; from: string; to: string }) {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const element = box.current
    if (!element) return
    const style = getComputedStyle(document.documentElement)
    const colour = (name: string) => style.getPropertyValue(name)
    // A canvas does not know light-dark(): an element of that colour does.
    const resolve = (name: string) => {
      element.style.color = colour(name)
      const resolved = getComputedStyle(element).color
      element.style.color = ''
      return resolved
    }
    const [ink, line] = [resolve('--color-soft'), resolve('--color-line')]
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false } }
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: 220,
        scales: { x: { time: true, range: [Date.parse(from) / 1_000, Date.parse(to) / 1_000] } },
        axes: [axis, { ...axis, size: 60, values: (_, values) => values.map((value) => short(value)) }],
        series: [
          {},
          { label: t.input, stroke: resolve('--color-accent'), width: 2 },
          { label: t.output, stroke: resolve('--color-good'), width: 2 },
        ],
      },
      [
        entries.map((entry) => Date.parse(entry.date) / 1_000),
        entries.map(({ input_tokens }) => input_tokens),
        entries.map(({ output_tokens }) => output_tokens),
      ],
      element,
    )
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 220 }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [entries, from, to])
  return (
    <div ref={box} role="img" aria-label={t.chart} className="mb-3 overflow-hidden rounded-xl border border-line p-3" />
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
