import { Link } from '@tanstack/react-router'
import { Activity, Bot } from 'lucide-react'
import { texts } from '../../texts.ts'

const t = texts.nextSteps

const STEPS = [
  { to: '/agents/new', icon: Bot, title: t.agent, text: t.agentText },
  { to: '/runs', icon: Activity, title: t.runs, text: t.runsText },
] as const

/** What somebody who has just come can do next. */
export function NextSteps() {
  return (
    <section aria-label={t.title} className="mt-6">
      <h2 className="mb-2 font-medium text-soft">{t.title}</h2>
      <ul className="grid gap-2 sm:grid-cols-2">
        {STEPS.map(({ to, icon: Icon, title, text }) => (
          <li key={to}>
            <Link to={to} className="flex h-full gap-3 rounded-xl border border-line p-3 hover:bg-hover">
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
