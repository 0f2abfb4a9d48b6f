import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { Bot, FolderOpen, type LucideIcon, MessageSquare, SquarePen, Target } from 'lucide-react'
import { useDeferredValue, useEffect, useRef, useState } from 'react'
import { Dialog } from './components/dialog.tsx'
import { MAX_AGENTS, useAgents } from './features/agents/names.ts'
import { isUntouched } from './features/chat/chat-list.tsx'
import { cn } from './lib/class-names.ts'
import { GROUPS, OF_ADMINS, SETTINGS } from './navigation.ts'
import { query } from './queries.ts'
import { useIsAdmin } from './session.ts'
import { texts } from './texts.ts'

const t = texts.palette

type Item = { key: string; label: string; kind: string; icon: LucideIcon; go: () => unknown }

const MAX_ITEMS = 50

/** Finds pages, agents, chats, missions and spaces by a few letters. */
export default function Palette({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const list = useRef<HTMLDivElement>(null)
  const isAdmin = useIsAdmin()
  const { agents: listed } = useAgents()
  const search = useDeferredValue(text.trim())
  const searched = useQuery({
    ...query('agents.list', { search, limit: MAX_ITEMS }),
    enabled: search !== '' && listed.length >= MAX_AGENTS,
  })
  const agents = new Map([...listed, ...(searched.data?.agents ?? [])].map((agent) => [agent.id, agent]))
  const chats = useQuery(query('chats.list', { mission: false, limit: 1000 }))
  const missions = useQuery(query('missions.list', { limit: 200 }))
  const spaces = useQuery(query('spaces.list', { limit: 200 }))

  const items: Item[] = [
    { key: 'new', label: texts.chat.newChat, kind: t.action, icon: SquarePen, go: () => navigate({ to: '/' }) },
    { key: 'agent', label: texts.agents.new, kind: t.action, icon: Bot, go: () => navigate({ to: '/agents/new' }) },
    ...GROUPS.flat().map(({ to, label, icon }) => ({ key: to, label, kind: t.page, icon, go: () => navigate({ to }) })),
    ...Object.entries(texts.settings.sections)
      .filter(([section]) => isAdmin || !OF_ADMINS.has(section))
      .map(([section, label]) => ({
        key: `settings-${section}`,
        label,
        kind: SETTINGS.label,
        icon: SETTINGS.icon,
        go: () => navigate({ to: SETTINGS.to, params: { section } }),
      })),
    ...[...agents.values()].map(({ id, name }) => ({
      key: id,
      label: name,
      kind: t.agent,
      icon: Bot,
      go: () => navigate({ to: '/agents/$agentId', params: { agentId: id } }),
    })),
    ...(chats.data?.chats ?? [])
      .filter((chat) => !isUntouched(chat))
      .map(({ id, title }) => ({
        key: id,
        label: title,
        kind: t.chat,
        icon: MessageSquare,
        go: () => navigate({ to: '/chats/$chatId', params: { chatId: id } }),
      })),
    ...(missions.data?.missions ?? []).map(({ id, title }) => ({
      key: id,
      label: title,
      kind: t.mission,
      icon: Target,
      go: () => navigate({ to: '/missions/$missionId', params: { missionId: id } }),
    })),
    ...(spaces.data?.spaces ?? []).map(({ id, name }) => ({
      key: id,
      label: name,
      kind: t.space,
      icon: FolderOpen,
      go: () => navigate({ to: '/spaces/$spaceId', params: { spaceId: id } }),
    })),
  ]
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const found = items
    .filter(({ label, kind }) => words.every((word) => `${label} ${kind}`.toLowerCase().includes(word)))
    .slice(0, MAX_ITEMS)
  const current = Math.min(at, found.length - 1)

  // biome-ignore lint/correctness/useExhaustiveDependencies: the chosen item comes into view
  useEffect(() => {
    list.current?.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest' })
  }, [current])

  const choose = (item: Item | undefined) => {
    if (!item) return
    onClose()
    item.go()
  }

  return (
    <Dialog open onClose={onClose} title={t.open}>
      <input
        role="combobox"
        aria-label={t.open}
        aria-expanded
        aria-controls="palette"
        aria-activedescendant={found[current] ? `palette-${found[current].key}` : undefined}
        autoFocus
        className="field mb-3 text-base"
        placeholder={t.placeholder}
        value={text}
        onChange={({ target }) => {
          setText(target.value)
          setAt(0)
        }}
        onKeyDown={(event) => {
          const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
          if (step) {
            event.preventDefault()
            setAt((current + step + found.length) % Math.max(1, found.length))
          }
          if (event.key === 'Enter') choose(found[current])
        }}
      />
      <div
        ref={list}
        id="palette"
        role="listbox"
        tabIndex={-1}
        aria-label={t.results}
        className="max-h-[50vh] overflow-y-auto"
      >
        {found.map((item, index) => (
          <div
            key={item.key}
            id={`palette-${item.key}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === current}
            className={cn(
              'flex cursor-default items-center gap-2.5 rounded-md px-2.5 py-2',
              index === current && 'bg-hover',
            )}
            onPointerMove={() => setAt(index)}
            onClick={() => choose(item)}
            onKeyDown={({ key }) => key === 'Enter' && choose(item)}
          >
            <item.icon size={16} aria-hidden className="shrink-0 text-soft" />
            <bdi className="min-w-0 flex-1 truncate">{item.label}</bdi>
            <span className="shrink-0 text-soft text-xs">{item.kind}</span>
          </div>
        ))}
        {!found.length && <p className="px-2.5 py-4 text-soft">{t.nothing}</p>}
      </div>
    </Dialog>
  )
}
