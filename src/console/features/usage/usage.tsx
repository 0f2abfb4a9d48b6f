import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Gauge } from 'lucide-react'
import { type ReactNode, useMemo, useState } from 'react'
import type { Output } from '../../api.ts'
import { Button } from '../../components/button.tsx'
import { Empty, Loaded, Page, Section } from '../../components/page.tsx'
import { now } from '../../lib/clock.ts'
import { count, short, utcDate } from '../../lib/format.ts'
import { periodsBetween, toDate } from '../../lib/periods.ts'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { usage as t } from '../../texts/usage.ts'
import { texts } from '../../texts.ts'
import { AgentName, useAgentNames, useMembers } from '../agents/names.ts'
import { Chart, type Line } from './chart.tsx'

type Entry = Output<'usage.get'>['usage'][number]
type Amounts = Pick<Entry, 'executions' | 'failed' | 'input_tokens' | 'output_tokens'>

const DAY = 86_400_000

const LINK = 'underline decoration-line underline-offset-4 hover:decoration-ink'

/** The filters of the list of runs that have the length of a range. */
const SPANS: Readonly<Record<string, string>> = { 7: 'week', 30: 'month' }

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
                      {name === t.failed && value > 0 ? (
                        <Link to="/runs" search={{ status: 'failed', since: SPANS[range] }} className={LINK}>
                          {short(value)}
                        </Link>
                      ) : (
                        short(value)
                      )}
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

type By = keyof typeof t.splits

type Part = Amounts & { key: string }

/** The amounts of an entry by agent, model or user. */
const PARTS: Readonly<Record<Exclude<By, 'tokens'>, (entry: Entry) => readonly Part[]>> = {
  agent: ({ byAgent }) => byAgent.map((each) => ({ key: each.agentId, ...each })),
  model: ({ byModel }) => byModel.map((each) => ({ key: each.model ?? '', ...each })),
  user: ({ byUser }) => byUser.map((each) => ({ key: each.userId ?? '', ...each })),
}

const tokensOf = ({ input_tokens, output_tokens }: Amounts) => input_tokens + output_tokens

const former = (id: string) => `${texts.chat.formerMember} (${id.slice(0, 6)})`

function Parts({ entries }: { entries: readonly Entry[] }) {
  const rowsBy = (by: keyof typeof PARTS) => sum(entries.flatMap(PARTS[by]))
  const people = useMembers()
  const names = new Map(people.data?.members.map(({ userId, name }) => [userId, name]))
  return (
    <>
      <Section title={t.byAgent}>
        <Table
          title={t.byAgent}
          head={t.agent}
          rows={rowsBy('agent').map((row) => ({
            ...row,
            name: (
              <Link to="/runs" search={{ agentId: row.key }} className={LINK}>
                <AgentName id={row.key} />
              </Link>
            ),
          }))}
        />
      </Section>
      <Section title={t.byModel}>
        <Table
          title={t.byModel}
          head={t.model}
          rows={rowsBy('model').map((row) => ({ ...row, name: row.key || t.unknownModel }))}
        />
      </Section>
      <Section title={t.byUser}>
        <Table
          title={t.byUser}
          head={t.user}
          rows={rowsBy('user').map((row) => ({
            ...row,
            name: row.key ? (names.get(row.key) ?? former(row.key)) : t.unknownUser,
          }))}
        />
      </Section>
    </>
  )
}

/** Adds up rows with the same key, most tokens first. */
function sum(rows: readonly Part[]): Part[] {
  const byKey = new Map<string, Part>()
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
  return [...byKey.values()].sort((a, b) => tokensOf(b) - tokensOf(a) || b.executions - a.executions)
}

type Row = Part & { name: ReactNode }

/** Number of rows of a table that are drawn at a time. */
const MAX_ROWS = 100

/** The first rows of a table, and a button for more. */
function Table({ title, head, rows }: { title: string; head: string; rows: readonly Row[] }) {
  const [most, setMost] = useState(MAX_ROWS)
  return (
    // The keyboard must reach scrolling regions.
    <div tabIndex={0} role="group" aria-label={title} className="max-h-96 overflow-auto rounded-xl border border-line">
      <table className="w-full" aria-label={title}>
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

/** Most lines of a chart; the rest is one line. */
const MAX_LINES = 5
const COLOURS = ['--color-accent', '--color-good', '--color-warn', '--color-danger', '--color-edge', '--color-soft']

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
        title={t.overTime}
        head={t.date}
        rows={entries.toReversed().map((entry) => ({ key: entry.date, name: utcDate(entry.date), ...entry }))}
      />
    </Section>
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
