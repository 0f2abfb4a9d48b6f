import { useInfiniteQuery } from '@tanstack/react-query'
import { ScrollText } from 'lucide-react'
import { useDeferredValue, useState } from 'react'
import { Code } from '../../components/code.tsx'
import { TextField } from '../../components/field.tsx'
import { More } from '../../components/more.tsx'
import { Empty, Loaded, Rows } from '../../components/page.tsx'
import { moment, pretty } from '../../lib/format.ts'
import { pages } from '../../queries.ts'
import { useIsAdmin } from '../../session.ts'
import { texts } from '../../texts.ts'

const t = texts.settings.audit

/** Every change in the organization, newest first. */
export function Audit() {
  const isAdmin = useIsAdmin()
  const [text, setText] = useState('')
  const action = useDeferredValue(text.trim())
  const list = useInfiniteQuery({ ...pages('audit.list', action ? { action } : {}), enabled: isAdmin })
  if (!isAdmin) return <p className="text-soft">{texts.settings.onlyAdmins}</p>
  return (
    <>
      <p className="mb-4 text-soft">{t.help}</p>
      <TextField
        label={t.action}
        help={t.actionHelp}
        wrap="max-w-72"
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
      <Loaded query={list}>
        {({ pages: read }) => {
          const events = read.flatMap((page) => page.events)
          if (!events.length) return <Empty icon={ScrollText} title={t.emptyTitle} />
          return (
            <Rows>
              {events.map((event) => (
                <li key={event.id} className="px-4 py-2.5">
                  <div className="flex flex-wrap items-center gap-x-3 gap-y-0.5">
                    <code className="font-mono text-xs">{event.action}</code>
                    <bdi className="font-medium">{event.actor.name}</bdi>
                    <span className="min-w-0 flex-1 truncate font-mono text-soft text-xs">{event.target}</span>
                    <time dateTime={event.at} className="text-soft text-xs">
                      {moment(event.at)}
                    </time>
                  </div>
                  {event.changes !== null && event.changes !== undefined && (
                    <details>
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
