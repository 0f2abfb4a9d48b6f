import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { ChevronDown, MessagesSquare } from 'lucide-react'
import { useState } from 'react'
import { Avatar } from '../../components/badge.tsx'
import { buttonClass } from '../../components/button.tsx'
import { Dialog } from '../../components/dialog.tsx'
import { Menu, MenuItem, MenuLabel } from '../../components/menu.tsx'
import { Problem, useTitle } from '../../components/page.tsx'
import { cn } from '../../lib/class-names.ts'
import { readStored, store } from '../../lib/storage.ts'
import { useOnce } from '../../once.ts'
import { query, useAction } from '../../queries.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { AgentPicker } from '../agents/agent-picker.tsx'
import { agentQuery, useFoundAgents } from '../agents/names.ts'
import { ChatList } from './chat-list.tsx'
import { Composer } from './composer.tsx'
import { NEW } from './drafts.ts'
import { Greeting } from './greeting.tsx'
import { NextSteps } from './next-steps.tsx'
import { addAccepted } from './outgoing.ts'

const t = texts.chat
const LAST = 'muster.agent'

/** Maximum number of agents in the menu. A search finds the others. */
const MAX_CHOICE = 20

/** The first page: a greeting, and the composer of a new chat. */
export function NewChat() {
  useTitle(t.newChat)
  const { user } = useSession()
  const isAdmin = useIsAdmin()
  const navigate = useNavigate()
  const { agent: wanted, space: spaceId } = useSearch({ from: '/' })
  const space = useQuery({ ...query('spaces.get', { id: spaceId ?? '' }), enabled: spaceId !== undefined })
  const { agents: listed, isPending, hasMore } = useFoundAgents()
  const [chosen, setChosen] = useState<string | null>(null)
  const [isSearching, setIsSearching] = useState(false)

  const suggested = space.data?.space.assignedAgents[0]
  const id = chosen ?? wanted ?? suggested ?? readStored('localStorage', LAST)
  const isUnlisted = id !== null && !isPending && !listed.some((each) => each.id === id)
  const other = useQuery({ ...agentQuery(id ?? ''), enabled: isUnlisted })
  const agents = isUnlisted && other.data ? [other.data, ...listed] : listed
  const agent = agents.find((each) => each.id === id) ?? agents[0]
  const models = useQuery(query('models.list', undefined))
  const isOffline = models.data?.defaultModel === 'offline/echo'

  const once = useOnce()
  const begin = useAction(
    async ({ text, mediaIds }: { text: string; mediaIds: string[] }) => {
      const input = { message: text, background: true, mediaIds, ...(spaceId && { spaceId }) }
      // Without any agent the service creates one for the person.
      const made = await (agent ? once('agents.execute', { id: agent.id, ...input }) : once('executions.create', input))
      if (agent) store('localStorage', LAST, agent.id)
      addAccepted(made.chatId, text, made.executionId)
      return made
    },
    {
      changes: ['chats.list', 'agents.list'],
      onDone: ({ chatId }) => void navigate({ to: '/chats/$chatId', params: { chatId } }),
      quiet: true,
    },
  )

  // The last agent of this browser may be gone.
  const problem = begin.error ?? space.error ?? (id === wanted ? other.error : null)
  const name = agent?.name ?? t.assistant
  return (
    <div className="flex h-full">
      <ChatList />
      <div
        className="min-w-0 flex-1 overflow-y-auto"
        // The page of the chat is loaded while the person writes. Without it, an update of the server would reload this one.
        onInput={() => void import('./chat-page.tsx').catch(() => {})}
      >
        <div className="mx-auto flex min-h-full max-w-3xl relative flex-col justify-center px-4 py-10">
          <Link to="/chats" className={cn(buttonClass(), 'absolute top-3 right-4 md:top-4 lg:hidden')}>
            <MessagesSquare size={15} aria-hidden />
            {t.chats}
          </Link>
          <h1 className="mb-1 font-semibold text-xl">{t.hello(user.name.split(' ')[0] ?? '')}</h1>
          <div className="mb-5 text-base text-soft">
            {agent?.initialGreeting ? <Greeting text={agent.initialGreeting} /> : <p dir="auto">{t.helloText(name)}</p>}
          </div>
          {space.data && (
            <p className="mb-3 text-soft" dir="auto">
              {t.inSpace(space.data.space.name)}{' '}
              <Link to="/" className="text-accent underline underline-offset-2">
                {t.withoutSpace}
              </Link>
            </p>
          )}
          {problem && (
            <div className="mb-3">
              <Problem error={problem} />
            </div>
          )}
          <Composer
            draftKey={NEW}
            placeholder={t.placeholder(name)}
            onSend={(text, mediaIds) => begin.mutateAsync({ text, mediaIds })}
            onStop={null}
            isWaiting={isPending || other.isLoading || (spaceId !== undefined && !space.data)}
          >
            <Menu
              align="start"
              trigger={
                <button
                  type="button"
                  className="flex min-w-0 items-center gap-2 rounded-md px-2 py-1 hover:bg-hover"
                  aria-label={t.talkTo(name)}
                >
                  <Avatar name={name} />
                  <bdi className="truncate font-medium">{name}</bdi>
                  <ChevronDown size={14} aria-hidden className="shrink-0 text-soft" />
                </button>
              }
            >
              <MenuLabel>{t.pickAgent}</MenuLabel>
              {agents.slice(0, MAX_CHOICE).map((each) => (
                <MenuItem key={each.id} checked={each.id === agent?.id} onSelect={() => setChosen(each.id)}>
                  <bdi>{each.name}</bdi>
                </MenuItem>
              ))}
              {(hasMore || agents.length > MAX_CHOICE) && (
                <MenuItem onSelect={() => setIsSearching(true)}>{t.otherAgent}</MenuItem>
              )}
              <MenuItem onSelect={() => void navigate({ to: '/agents/new' })}>{t.newAgent}</MenuItem>
            </Menu>
          </Composer>
          {isSearching && (
            <Dialog open onClose={() => setIsSearching(false)} title={t.pickAgent}>
              <AgentPicker
                label={t.agent}
                value={agent?.id ?? ''}
                onChange={(agentId) => {
                  setChosen(agentId)
                  setIsSearching(false)
                }}
              />
            </Dialog>
          )}
          {isOffline && (
            <p className="mt-3 text-soft">
              {t.offline} {isAdmin ? t.addProvider : t.askForProvider}
            </p>
          )}
          <NextSteps />
        </div>
      </div>
    </div>
  )
}
