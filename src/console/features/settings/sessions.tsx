import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { Badge } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { TextField } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { Loaded, Rows, Section } from '../../components/page.tsx'
import { Ago } from '../../components/time.tsx'
import { query, useAction, WATCHED } from '../../queries.ts'
import { settings } from '../../texts/settings.ts'

const t = settings.profile

const BROWSERS = [
  ['Edge', /Edg\//],
  ['Opera', /OPR\//],
  ['Firefox', /Firefox\//],
  ['Chrome', /Chrom(e|ium)\//],
  ['Safari', /Safari\//],
] as const
const SYSTEMS = [
  ['iPhone', /iPhone/],
  ['iPad', /iPad/],
  ['Android', /Android/],
  ['macOS', /Mac OS/],
  ['Windows', /Windows/],
  ['Linux', /Linux/],
] as const

/** Names a browser and its system, as far as they are known. */
function browserOf(agent: string | null): string | null {
  if (!agent) return null
  const find = (names: readonly (readonly [string, RegExp])[]) => names.find(([, mark]) => mark.test(agent))?.[0]
  return [find(BROWSERS), find(SYSTEMS)].filter(Boolean).join(' · ') || agent
}

/** The browsers in which the person is signed in. */
export function Sessions() {
  const list = useQuery({ ...query('sessions.list', undefined), ...WATCHED })
  const end = useAction((id: string) => callMutation('sessions.end', { id }), { changes: ['sessions.'], done: t.ended })
  return (
    <Section title={t.sessions}>
      <p className="mb-2 text-soft">{t.sessionsHelp}</p>
      <Loaded query={list} lines={2}>
        {({ sessions }) => (
          <Rows>
            {sessions.map((session) => (
              <li key={session.id} className="flex items-center gap-3 px-4 py-2.5">
                <div className="min-w-0 flex-1">
                  <p className="truncate" title={session.userAgent ?? ''}>
                    {browserOf(session.userAgent) ?? session.method}
                  </p>
                  <p className="truncate text-soft text-xs">
                    {session.address} · {t.lastSeen}: <Ago at={session.lastSeenAt} />
                  </p>
                </div>
                {session.current ? (
                  <Badge kind="good">{t.current}</Badge>
                ) : (
                  <Button small kind="danger" disabled={end.isPending} onClick={() => end.mutate(session.id)}>
                    {t.end}
                  </Button>
                )}
              </li>
            ))}
          </Rows>
        )}
      </Loaded>
    </Section>
  )
}

/** Sets or changes the person's password. */
export function Password() {
  const session = useQuery(query('sessions.current', undefined))
  const [current, setCurrent] = useState('')
  const [next, setNext] = useState('')
  useGuard(next !== '')
  const change = useAction(() => callMutation('sessions.changePassword', { ...(current && { current }), new: next }), {
    changes: ['sessions.'],
    done: t.passwordChanged,
    quiet: true,
    onDone: () => {
      setCurrent('')
      setNext('')
    },
  })
  return (
    <Section title={t.password}>
      <Form save={change} isReady={next.length >= 12} label={t.changePassword} className="max-w-md">
        {/* Password managers change the entry of this user. */}
        <input type="email" autoComplete="username" value={session.data?.user.email ?? ''} readOnly hidden />
        {session.data?.user.hasPassword && (
          <TextField
            label={t.currentPassword}
            field="current"
            type="password"
            autoComplete="current-password"
            value={current}
            onChange={({ target }) => setCurrent(target.value)}
          />
        )}
        <TextField
          label={t.newPassword}
          field="new"
          help={t.newPasswordHelp}
          type="password"
          autoComplete="new-password"
          minLength={12}
          value={next}
          onChange={({ target }) => setNext(target.value)}
        />
      </Form>
    </Section>
  )
}
