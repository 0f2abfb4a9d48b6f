import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useVirtualizer } from '@tanstack/react-virtual'
import { Activity } from 'lucide-react'
import { type ReactNode, useEffect, useId, useLayoutEffect, useMemo, useRef, useSyncExternalStore } from 'react'
import type { Input, Output } from '../../api.ts'
import { Badge, kindOf } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { Filter } from '../../components/filter.tsx'
import { Empty, Loading, Problem, useTitle } from '../../components/page.tsx'
import type { PickerProps } from '../../components/picker.tsx'
import { useScrollPlace } from '../../components/scroll-place.ts'
import { Ago } from '../../components/time.tsx'
import { cn } from '../../lib/class-names.ts'
import { now } from '../../lib/clock.ts'
import { count, duration, short } from '../../lib/format.ts'
import { pages, query, WATCHED } from '../../queries.ts'
import { runs as t } from '../../texts/runs.ts'
import { texts } from '../../texts.ts'
import { AgentPicker } from '../agents/agent-picker.tsx'
import { useAgentNames, usePeopleNames } from '../agents/names.ts'
import { SpacePicker } from '../spaces/space-picker.tsx'
import { withNewest } from './newest.ts'

type Row = Output<'executions.list'>['executions'][number]

const HOUR = 3_600_000
const SPANS = { hour: HOUR, day: 24 * HOUR, week: 168 * HOUR, month: 720 * HOUR }
type Span = keyof typeof SPANS

/** Whether a row has all columns in one line. A smaller window has the agent and the failure in a second line. */
const wide = matchMedia('(min-width: 64rem)')
const onWidth = (listener: () => void) => {
  wide.addEventListener('change', listener)
  return () => wide.removeEventListener('change', listener)
}
const REM = Number.parseFloat(getComputedStyle(document.documentElement).fontSize)
const useRowHeight = () => useSyncExternalStore(onWidth, () => (wide.matches ? 2.75 : 3.75) * REM)

const COLUMNS =
  'grid grid-cols-[minmax(0,5.75rem)_minmax(25%,1fr)_minmax(0,5.25rem)] content-center items-center gap-x-2 gap-y-0.5 px-4 sm:grid-cols-[minmax(0,8.5rem)_minmax(25%,1fr)_minmax(0,5.5rem)] sm:gap-x-3 sm:px-6 lg:grid-cols-[8.5rem_minmax(0,1fr)_minmax(0,2fr)_5rem_5rem_6rem] xl:grid-cols-[8.5rem_minmax(0,1fr)_minmax(0,2fr)_8rem_5rem_5rem_6rem]'

/** All runs that the person may see, newest first. The filters are in the URL. */
export function Runs() {
  const search = useSearch({ from: '/runs' })
  const navigate = useNavigate({ from: '/runs' })
  useTitle(t.title)

  const filter = useMemo((): Exclude<Input<'executions.list'>, void> => {
    const span = SPANS[search.since as Span]
    return {
      ...(search.status && { status: search.status as Row['status'] }),
      ...(search.agentId && { agentId: search.agentId }),
      ...(search.spaceId && { spaceId: search.spaceId }),
      // Rounded to the minute, so that the query stays the same for a while.
      ...(span && { since: new Date(Math.floor((now() - span) / 60_000) * 60_000).toISOString() }),
    }
  }, [search])
  const list = useInfiniteQuery({ ...pages('executions.list', filter, 200), ...WATCHED })
  // New runs appear on top: one short page is polled often, not all loaded ones.
  const head = useQuery({ ...query('executions.list', { ...filter, limit: 50 }), refetchInterval: 5_000 })
  const total = useQuery({
    ...query('executions.list', { ...filter, limit: 1, count: true }),
    refetchInterval: 30_000,
  })

  const rows = useMemo(() => {
    const loaded = list.data?.pages.flatMap((page) => page.executions) ?? []
    // The runs of another filter stay until those of this one are read.
    return withNewest(loaded, list.isPlaceholderData ? undefined : head.data)
  }, [list.data, list.isPlaceholderData, head.data])

  const isFiltered = Object.keys(filter).length > 0
  const set = (changes: Partial<typeof search>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true })
  return (
    <div className="flex h-full flex-col overflow-y-auto">
      <header className="flex flex-wrap items-end gap-x-4 gap-y-2 px-4 pt-5 pb-3 sm:px-6">
        <div className="mr-auto">
          <h1 className="font-semibold text-xl">{t.title}</h1>
          <p className="text-soft" aria-live="polite">
            {total.data?.total === undefined ? ' ' : t.total(count(total.data.total))}
          </p>
        </div>
        <Filter
          label={t.status}
          value={search.status}
          options={texts.runStates}
          onChange={(status) => set({ status })}
        />
        <FoundFilter label={t.agent}>
          {(picker) => (
            <AgentPicker
              {...picker}
              fixed={[{ key: '', label: texts.all }]}
              value={search.agentId ?? ''}
              onChange={(agentId) => set({ agentId: agentId || undefined })}
            />
          )}
        </FoundFilter>
        <FoundFilter label={t.space}>
          {(picker) => (
            <SpacePicker
              {...picker}
              none={texts.all}
              value={search.spaceId ?? ''}
              onChange={(spaceId) => set({ spaceId: spaceId || undefined })}
            />
          )}
        </FoundFilter>
        <Filter
          label={t.since}
          any={t.anyTime}
          value={search.since}
          options={t.sinceOf}
          onChange={(since) => set({ since })}
        />
      </header>
      {list.isPending ? (
        <div className="px-6">
          <Loading lines={8} />
        </div>
      ) : list.error && !rows.length ? (
        <div className="px-6">
          <Problem error={list.error} retry={() => void list.refetch()} />
        </div>
      ) : rows.length === 0 ? (
        <div className="px-6">
          <Empty
            icon={Activity}
            title={isFiltered ? t.noMatch : t.emptyTitle}
            {...(isFiltered ? {} : { text: t.emptyText })}
          >
            {isFiltered && <Button onClick={() => void navigate({ search: {}, replace: true })}>{t.clear}</Button>}
          </Empty>
        </div>
      ) : (
        <Table
          rows={rows}
          isOutdated={list.isPlaceholderData}
          more={() => {
            if (list.hasNextPage && !list.isFetchingNextPage) void list.fetchNextPage()
          }}
        />
      )}
    </div>
  )
}

type TableProps = { rows: readonly Row[]; isOutdated: boolean; more: () => void }

function Table({ rows, isOutdated, more }: TableProps) {
  const box = useRef<HTMLDivElement>(null)
  const rowHeight = useRowHeight()
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  })
  // biome-ignore lint/correctness/useExhaustiveDependencies: the virtualizer reads the height of a row only when asked.
  useLayoutEffect(() => virtual.measure(), [virtual, rowHeight])
  // It moves the box to its top first.
  useScrollPlace(box)
  const items = virtual.getVirtualItems()
  const nameOf = useAgentNames(items.flatMap(({ index }) => rows[index]?.agentId ?? []))
  const personOf = usePeopleNames(items.flatMap(({ index }) => rows[index]?.userId ?? []))
  const last = items.at(-1)?.index ?? 0
  useEffect(() => {
    if (last >= rows.length - 60) more()
  }, [last, rows.length, more])
  return (
    <div
      className="flex min-h-48 flex-1 flex-col border-line border-t"
      role="table"
      aria-label={t.title}
      aria-rowcount={-1}
    >
      <div role="rowgroup" className="border-line border-b bg-panel">
        <div role="row" className={`${COLUMNS} py-2 text-soft text-xs`}>
          <span role="columnheader">{t.status}</span>
          <span role="columnheader" className="hidden lg:block">
            {t.agent}
          </span>
          <span role="columnheader">{t.message}</span>
          <span role="columnheader" className="hidden xl:block">
            {t.startedBy}
          </span>
          <span role="columnheader" className="hidden text-right lg:block">
            {t.tokens}
          </span>
          <span role="columnheader" className="hidden text-right lg:block">
            {t.time}
          </span>
          <span role="columnheader" className="text-right">
            {t.started}
          </span>
        </div>
      </div>
      <div
        ref={box}
        className={cn('min-h-0 flex-1 overflow-y-auto', isOutdated && 'animate-fade')}
        role="rowgroup"
        aria-busy={isOutdated || undefined}
      >
        <div style={{ height: virtual.getTotalSize(), position: 'relative' }} role="presentation">
          {items.map(({ index, start }) => {
            const row = rows[index]
            if (!row) return null
            const error = row.status === 'failed' ? row.error : undefined
            return (
              <div
                key={row.id}
                role="row"
                aria-rowindex={index + 2}
                className={`${COLUMNS} absolute inset-x-0 border-line border-b hover:bg-panel`}
                style={{ height: rowHeight, transform: `translateY(${start}px)` }}
              >
                <span role="cell" className="overflow-hidden">
                  <Badge kind={row.waitingFor ? 'warn' : kindOf(row.status)}>
                    {row.waitingFor ? <Waits reason={row.waitingFor} /> : texts.runStates[row.status]}
                  </Badge>
                </span>
                <span
                  role="cell"
                  className="order-last col-span-full flex min-w-0 gap-2 text-soft lg:order-none lg:col-span-1 lg:text-ink"
                >
                  <bdi className={cn('truncate', error && 'max-w-2/5 shrink-0 lg:max-w-full lg:shrink')}>
                    {nameOf(row.agentId)}
                  </bdi>
                  {error && (
                    <span className="min-w-0 flex-1 truncate text-danger lg:hidden" dir="auto">
                      {error}
                    </span>
                  )}
                </span>
                <span role="cell" className="flex min-w-0 gap-3">
                  <Link
                    to="/runs/$runId"
                    params={{ runId: row.id }}
                    className="min-w-0 flex-1 truncate after:absolute after:inset-0"
                    dir="auto"
                  >
                    {row.message || row.id}
                  </Link>
                  {error && (
                    <span className="hidden min-w-0 flex-1 truncate text-danger lg:block" title={error} dir="auto">
                      {error}
                    </span>
                  )}
                </span>
                <bdi role="cell" className="hidden truncate text-soft xl:block">
                  {personOf(row.userId)}
                </bdi>
                <span role="cell" className="hidden text-right tabular-nums lg:block">
                  {short(row.usage.input_tokens + row.usage.output_tokens)}
                </span>
                <span role="cell" className="hidden text-right tabular-nums lg:block">
                  {row.executionTime === undefined ? '' : duration(row.executionTime)}
                </span>
                <span role="cell" className="text-right text-soft">
                  <Ago at={row.createdAt} />
                </span>
              </div>
            )
          })}
        </div>
      </div>
    </div>
  )
}

/** The state of a run that waits. A phone has space for one word. */
const Waits = ({ reason }: { reason: NonNullable<Row['waitingFor']> }) => (
  <>
    <span className="sm:hidden">{texts.approvals.states.pending}</span>
    <span className="hidden sm:inline">{t.waits[reason]}</span>
  </>
)

type FoundFilterProps = {
  label: string
  children: (picker: Pick<PickerProps, 'id' | 'label' | 'className'>) => ReactNode
}

/** A filter whose options the server searches. */
function FoundFilter({ label, children }: FoundFilterProps) {
  const id = useId()
  return (
    <div className="flex min-w-0 max-w-52 flex-col text-soft text-xs">
      <label htmlFor={id}>{label}</label>
      {children({ id, label, className: 'w-40 max-w-full text-ink [&>input]:py-1' })}
    </div>
  )
}
