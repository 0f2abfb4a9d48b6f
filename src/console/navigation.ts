import { Activity, Bot, CircleCheckBig, MessageSquare } from 'lucide-react'
import { texts } from './texts.ts'

const t = texts.nav

/** The pages of the console, in groups. */
export const GROUPS = [
  [
    { to: '/', label: t.chat, icon: MessageSquare, also: '/chats' },
    { to: '/agents', label: t.agents, icon: Bot },
    { to: '/runs', label: t.runs, icon: Activity },
  ],
  [{ to: '/approvals', label: t.approvals, icon: CircleCheckBig }],
] as const
