import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Bot, KeyRound, ListChecks, Plug } from 'lucide-react'
import { query } from '../../queries.ts'
import { useIsAdmin } from '../../session.ts'
import { texts } from '../../texts.ts'
import { isUntouched } from './chat-list.tsx'

const t = texts.nextSteps

/** A user who has written in more chats needs no next steps. */
const NEWCOMER = 5

/** Number of chats to look at, as every agent comes with one. */
const LATEST = 40

/** Next steps for a new user. */
export function NextSteps() {
  const { data } = useQuery(query('models.list', undefined))
  const isAdmin = useIsAdmin()
  const chats = useQuery(query('chats.list', { limit: LATEST }))
  if (!chats.data || chats.data.chats.filter((chat) => !isUntouched(chat)).length > NEWCOMER) return null
  const isOffline = data?.models.every(({ available, provider }) => !available || provider === 'offline') ?? false
  const steps = [
    ...(isOffline && isAdmin
      ? [
          {
            to: '/settings/$section',
            params: { section: 'providers' },
            icon: KeyRound,
            title: t.provider,
            text: t.providerText,
          } as const,
        ]
      : []),
    { to: '/agents/new', icon: Bot, title: t.agent, text: t.agentText },
    { to: '/mcps', icon: Plug, title: t.tools, text: t.toolsText },
    { to: '/tasks', icon: ListChecks, title: t.tasks, text: t.tasksText },
  ] as const
  return (
    <section aria-label={t.title} className="mt-6">
      <h2 className="mb-2 font-medium text-soft">{t.title}</h2>
      <ul className="grid gap-2 sm:grid-cols-2">
        {steps.map(({ icon: Icon, title, text, ...link }) => (
          <li key={title}>
            <Link {...link} className="flex h-full gap-3 rounded-xl border border-line p-3 hover:bg-hover">
              <Icon size={18} aria-hidden className="mt-0.5 shrink-0 text-accent" />
              <span>
                <span className="block font-medium">{title}</span>
                <span className="block text-soft">{text}</span>
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </section>
  )
}
