import {
  Activity,
  Bot,
  Boxes,
  CircleCheckBig,
  FolderOpen,
  Gauge,
  KanbanSquare,
  MessageSquare,
  Plug,
  Settings,
  Target,
} from 'lucide-react'
import { texts } from './texts.ts'

const t = texts.nav

/** The pages of the console, in groups. */
export const GROUPS = [
  [
    { to: '/', label: t.chat, icon: MessageSquare, also: '/chats' },
    { to: '/agents', label: t.agents, icon: Bot },
    { to: '/runs', label: t.runs, icon: Activity },
  ],
  [
    { to: '/tasks', label: t.tasks, icon: KanbanSquare },
    { to: '/missions', label: t.missions, icon: Target },
    { to: '/approvals', label: t.approvals, icon: CircleCheckBig },
  ],
  [
    { to: '/spaces', label: t.spaces, icon: FolderOpen },
    { to: '/skills', label: t.skills, icon: Boxes },
    { to: '/mcps', label: t.mcps, icon: Plug },
    { to: '/usage', label: t.usage, icon: Gauge },
  ],
] as const

/** Sections of the settings that only admins can see. */
export const OF_ADMINS: ReadonlySet<string> = new Set(['service-accounts', 'secrets', 'webhooks', 'audit'])

export const SETTINGS = {
  to: '/settings/$section',
  params: { section: 'profile' },
  label: t.settings,
  icon: Settings,
} as const
