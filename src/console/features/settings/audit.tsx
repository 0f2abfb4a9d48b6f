import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Download, ScrollText, X } from 'lucide-react'
import { BASE } from '../../api.ts'
import { Button, buttonClass } from '../../components/button.tsx'
import { Code } from '../../components/code.tsx'
import { Select, TextField } from '../../components/field.tsx'
import { More } from '../../components/more.tsx'
import { Empty, Loaded, Rows } from '../../components/page.tsx'
import { useTyped } from '../../components/search.tsx'
import { moment, pretty } from '../../lib/format.ts'
import { midnight } from '../../lib/periods.ts'
import { pages, WATCHED } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { settings } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import { useMembers } from '../agents/names.ts'

const t = settings.audit

type Filter = { action: string; actorId: string; target: string; since: string; until: string }
const NONE: Filter = { action: '', actorId: '', target: '', since: '', until: '' }

/** Every change in the organization, newest first. The filters are in the URL. */
export function Audit() {
  const isAdmin = useIsAdmin()
  const { organization } = useSession()
  const navigate = useNavigate({ from: '/settings/$section' })
  const wanted: Filter = { ...NONE, ...useSearch({ from: '/settings/$section' }) }
  const [action, since, until] = [useTyped('action'), useTyped('since'), useTyped('until')]
  // The list has the times of the person, and the last day is part of it.
  const asked = { ...wanted, action: action.text, since: midnight(since.text), until: midnight(until.text, 1) }
  const filter = Object.fromEntries(
    Object.entries(asked).flatMap(([name, text]) => (text.trim() ? [[name, text.trim()]] : [])),
  )
  const { data: members } = useMembers()
  const list = useInfiniteQuery({ ...pages('audit.list', filter), ...WATCHED, enabled: isAdmin })
  if (!isAdmin) return <p className="text-soft">{settings.onlyAdmins}</p>
  const set = (changes: Partial<Filter>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true })
  const actors = [
    ...(members?.members ?? []).map(({ userId, name }) => ({ value: userId, label: name })),
    { value: 'operator', label: t.kinds.system },
  ]
  const { actorId } = wanted
  // A former member, whose name the events have.
  if (actorId && !actors.some(({ value }) => value === actorId)) {
    const event = list.data?.pages.flatMap((page) => page.events).find(({ actor }) => actor.id === actorId)
    actors.push({ value: actorId, label: event?.actor.name ?? texts.chat.formerMember })
  }
  const file = new URLSearchParams({ ...filter, organization: organization?.id ?? '' })
  return (
    <>
      <div className="mb-3 flex flex-wrap items-center justify-between gap-3">
        <p className="text-soft">{t.help}</p>
        <a href={`${BASE}/api/v1/audit/export?${file}`} download="audit.ndjson" className={buttonClass()}>
          <Download size={15} aria-hidden />
          {t.export}
        </a>
      </div>
      <div className="grid grid-cols-1 gap-x-3 sm:grid-cols-2 lg:grid-cols-4">
        <TextField
          label={t.action}
          isCode
          placeholder={t.actionHelp}
          value={action.field.value}
          onChange={({ target }) => action.field.onChange(target.value)}
        />
        <Select
          label={t.actor}
          options={[{ value: '', label: texts.all }, ...actors]}
          value={wanted.actorId}
          onChange={({ target }) => set({ actorId: target.value })}
        />
        <TextField
          label={t.since}
          type="date"
          value={since.field.value}
          onChange={({ target }) => since.field.onChange(target.value)}
        />
        <TextField
          label={t.until}
          type="date"
          value={until.field.value}
          onChange={({ target }) => until.field.onChange(target.value)}
        />
      </div>
      {wanted.target && (
        <p className="mb-3 flex items-center gap-2">
          <span className="min-w-0 truncate">
            {t.only} <code className="font-mono text-xs">{wanted.target}</code>
          </span>
          <Button small icon={X} onClick={() => set({ target: '' })}>
            {t.everything}
          </Button>
        </p>
      )}
      <Loaded query={list}>
        {({ pages: read }) => {
          const events = read.flatMap((page) => page.events)
          if (!events.length) {
            return <Empty icon={ScrollText} title={Object.keys(filter).length ? t.noMatch : t.emptyTitle} />
          }
          return (
            <Rows>
              {events.map((event) => (
                <li key={event.id} className="px-4 py-2.5">
                  <div className="flex flex-wrap items-baseline gap-x-3 gap-y-0.5">
                    <code className="font-mono text-xs">{event.action}</code>
                    <button
                      type="button"
                      className="min-w-0 truncate font-medium hover:text-accent hover:underline"
                      title={t.onlyActor}
                      onClick={() => set({ actorId: event.actor.id })}
                    >
                      <bdi>{event.actor.name}</bdi>
                    </button>
                    <span className="text-soft text-xs">{t.kinds[event.actor.kind]}</span>
                    <time dateTime={event.at} className="ml-auto text-soft text-xs">
                      {moment(event.at)}
                    </time>
                  </div>
                  <p className="flex flex-wrap gap-x-3 text-soft text-xs">
                    <button
                      type="button"
                      className="min-w-0 truncate font-mono hover:text-accent hover:underline"
                      title={t.onlyTarget}
                      onClick={() => set({ target: event.target })}
                    >
                      {event.target}
                    </button>
                    {event.ip && <span className="font-mono">{event.ip}</span>}
                  </p>
                  {event.changes !== null && event.changes !== undefined && (
                    <details className="mt-0.5">
                      <summary className="text-soft text-xs">{t.changes}</summary>
                      <Code text={pretty(event.changes)} className="mt-1" />
                    </details>
                  )}
                </li>
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
    </>
  )
}
