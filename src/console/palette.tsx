import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Bot, FolderOpen, type LucideIcon, MessageSquare, SquarePen, Target } from 'lucide-react'
import { useState } from 'react'
import type { Output } from './api.ts'
import { fits, useCombobox } from './components/combobox.ts'
import { Dialog } from './components/dialog.tsx'
import { MAX_SEARCH } from './components/search.tsx'
import { useFoundAgents } from './features/agents/names.ts'
import { isUntouched } from './features/chat/chat-list.tsx'
import { useSettled } from './lib/settled.ts'
import { GROUPS, OF_ADMINS, SETTINGS } from './navigation.ts'
import { query } from './queries.ts'
import { useIsAdmin } from './session.ts'
import { texts } from './texts.ts'

const t = texts.palette

type Item = { key: string; label: string; kind: string; icon: LucideIcon; go: () => unknown }

const MAX_ITEMS = 50

/** The chats that people have had, the missions and the spaces, the newest first. */
function useFound(text = '') {
  const search = useSettled(text)
  const filter = { limit: MAX_ITEMS, ...(search && { search }) }
  const chats = useQuery(query('chats.list', { mission: false, ...filter }))
  const missions = useQuery(query('missions.list', filter))
  const spaces = useQuery(query('spaces.list', filter))
  const isSettled = search === text
  return {
    chats: (isSettled && chats.data?.chats.filter((chat) => !isUntouched(chat))) || [],
    missions: (isSettled && missions.data?.missions) || [],
    spaces: (isSettled && spaces.data?.spaces) || [],
    isPending: !isSettled || [chats, missions, spaces].some((list) => list.isPending),
  }
}

/** Finds pages, agents, chats, missions and spaces by a few letters. */
export default function Palette({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const isAdmin = useIsAdmin()
  const { agents } = useFoundAgents()
  const foundAgents = useFoundAgents(text.trim())
  const { chats, missions, spaces } = useFound()
  const found = useFound(text.trim())

  const toChat = ({ id, title }: Output<'chats.list'>['chats'][number]): Item => ({
    key: id,
    label: title,
    kind: t.chat,
    icon: MessageSquare,
    go: () => navigate({ to: '/chats/$chatId', params: { chatId: id } }),
  })
  const toAgent = ({ id, name }: { id: string; name: string }): Item => ({
    key: id,
    label: name,
    kind: t.agent,
    icon: Bot,
    go: () => navigate({ to: '/agents/$agentId', params: { agentId: id } }),
  })
  const toMission = ({ id, title }: Output<'missions.list'>['missions'][number]): Item => ({
    key: id,
    label: title,
    kind: t.mission,
    icon: Target,
    go: () => navigate({ to: '/missions/$missionId', params: { missionId: id } }),
  })
  const toSpace = ({ id, name }: Output<'spaces.list'>['spaces'][number]): Item => ({
    key: id,
    label: name,
    kind: t.space,
    icon: FolderOpen,
    go: () => navigate({ to: '/spaces/$spaceId', params: { spaceId: id } }),
  })
  const items: Item[] = [
    { key: 'new', label: texts.chat.newChat, kind: t.action, icon: SquarePen, go: () => navigate({ to: '/' }) },
    { key: 'agent', label: texts.newAgent, kind: t.action, icon: Bot, go: () => navigate({ to: '/agents/new' }) },
    ...GROUPS.flat().map(({ to, label, icon }) => ({ key: to, label, kind: t.page, icon, go: () => navigate({ to }) })),
    ...Object.entries(texts.sections)
      .filter(([section]) => isAdmin || !OF_ADMINS.has(section))
      .map(([section, label]) => ({
        key: `settings-${section}`,
        label,
        kind: SETTINGS.label,
        icon: SETTINGS.icon,
        go: () => navigate({ to: SETTINGS.to, params: { section } }),
      })),
    ...agents.map(toAgent),
    ...chats.map(toChat),
    ...missions.map(toMission),
    ...spaces.map(toSpace),
  ]
  const fitting = items.filter(({ label, kind }) => fits(`${label} ${kind}`, text))
  // These arrive last, and move no other item under the pointer.
  const known = new Set(fitting.map(({ key }) => key))
  const more = [
    ...foundAgents.agents.map(toAgent),
    ...found.chats.map(toChat),
    ...found.missions.map(toMission),
    ...found.spaces.map(toSpace),
  ].filter(({ key }) => text.trim() && !known.has(key))
  const shown = [...fitting, ...more].slice(0, MAX_ITEMS)
  const { goTo, field, listbox, optionOf } = useCombobox(shown, ({ go }) => {
    onClose()
    go()
  })

  return (
    <Dialog open onClose={onClose} title={t.open}>
      <input
        role="combobox"
        {...field}
        aria-label={t.open}
        aria-expanded
        autoFocus
        className="field mb-3 text-base"
        placeholder={t.placeholder}
        maxLength={MAX_SEARCH}
        value={text}
        onChange={({ target }) => {
          setText(target.value)
          goTo(null)
        }}
      />
      <div role="listbox" {...listbox} aria-label={t.results} className="max-h-[50vh] overflow-y-auto">
        {shown.map((item) => (
          <div
            key={item.key}
            role="option"
            {...optionOf(item)}
            className="flex cursor-default items-center gap-2.5 rounded-md px-2.5 py-2 aria-selected:bg-hover"
          >
            <item.icon size={16} aria-hidden className="shrink-0 text-soft" />
            <bdi className="min-w-0 flex-1 truncate">{item.label}</bdi>
            <span className="shrink-0 text-soft text-xs">{item.kind}</span>
          </div>
        ))}
      </div>
      {!shown.length && (
        <p role="status" className="px-2.5 py-4 text-soft">
          {foundAgents.isPending || found.isPending ? texts.loading : t.nothing}
        </p>
      )}
    </Dialog>
  )
}
