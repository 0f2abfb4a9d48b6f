import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { SquarePen } from 'lucide-react'
import { useRef } from 'react'
import type { Output } from '../../api.ts'
import { buttonClass } from '../../components/button.tsx'
import { More } from '../../components/more.tsx'
import { Choice, Loaded } from '../../components/page.tsx'
import { useScrollPlace } from '../../components/scroll-place.ts'
import { SearchField, useSearching } from '../../components/search.tsx'
import { Ago } from '../../components/time.tsx'
import { cn } from '../../lib/class-names.ts'
import { everyMs, pages, query } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { useAuthors } from './authors.ts'

const t = texts.chat

type Chat = Output<'chats.list'>['chats'][number]

const DOTS: Readonly<Record<string, string>> = {
  working: 'bg-accent animate-pulse',
  needs_attention: 'bg-warn',
  error: 'bg-danger',
}

/** Returns whether a chat is the one that came with its agent, without any message yet. */
export const isUntouched = ({ messageCount, title, agentName }: Chat): boolean =>
  messageCount === 0 && title === agentName

const LISTS = { chats: t.chats, missions: texts.nav.missions }
type List = keyof typeof LISTS

/**
 * Returns the list that the URL names: the chats of people, or the runs of missions, which may be thousands. Without a
 * name it is the list that has the current chat.
 */
function useList(current: string | undefined): List {
  const { list } = useSearch({ strict: false })
  const chat = useQuery({ ...query('chats.get', { id: current ?? '' }), enabled: current !== undefined && !list })
  if (list) return list === 'missions' ? 'missions' : 'chats'
  return chat.data?.chat.missionTitle === undefined ? 'chats' : 'missions'
}

/** The name of the list, which several pages have. */
const CHATS = 'chats'

/** The chats, newest first. On narrow screens it is a separate page. */
export function ChatList({ current, isWholePage }: { current?: string; isWholePage?: boolean }) {
  const list = useList(current)
  const navigate = useNavigate()
  const { filter, field } = useSearching()
  const chats = useInfiniteQuery({
    ...pages('chats.list', { mission: list === 'missions', ...filter }, 40),
    ...everyMs(15_000),
  })
  const missions = useQuery({ ...query('chats.list', { mission: true, limit: 1 }), staleTime: 60_000 })
  const listed = list === 'chats' ? (chats.data?.pages.flatMap((page) => page.chats) ?? []) : []
  const authorOf = useAuthors(listed.map(({ ownerId: userId }) => ({ userId })))
  const box = useRef<HTMLElement>(null)
  useScrollPlace(box, CHATS)
  return (
    <aside
      ref={box}
      aria-label={t.chats}
      className={cn(
        'shrink-0 flex-col overflow-y-auto border-line',
        isWholePage ? 'flex w-full min-w-0' : 'hidden w-64 border-r bg-panel lg:flex print:hidden',
      )}
    >
      <div className={cn('p-3', !isWholePage && 'sticky top-0 bg-panel')}>
        <Link to="/" className={cn(buttonClass(), 'w-full')}>
          <SquarePen size={15} aria-hidden />
          {t.newChat}
        </Link>
        {(list === 'missions' || Boolean(missions.data?.chats.length)) && (
          <Choice
            label={t.show}
            options={LISTS}
            value={list}
            className="mt-2"
            onChange={(next) =>
              void navigate({ to: '.', search: (before) => ({ ...before, list: next }), replace: true })
            }
          />
        )}
        {(field.value || Boolean(chats.data?.pages[0]?.chats.length)) && (
          <SearchField list={LISTS[list]} className="mt-2" {...field} />
        )}
      </div>
      <div className="px-2 pb-4">
        <Loaded query={chats}>
          {({ pages: read }) => {
            const rows = read.flatMap((page) => page.chats).filter((chat) => !isUntouched(chat) || chat.id === current)
            if (!rows.length) {
              return (
                <p role="status" className="px-2 text-soft">
                  {filter.search ? texts.noMatch : t.noChats}
                </p>
              )
            }
            return (
              <ul>
                {rows.map((chat) => (
                  <Row
                    key={chat.id}
                    chat={chat}
                    owner={list === 'chats' ? authorOf({ userId: chat.ownerId }) : null}
                    search={{ list, ...filter }}
                    isCurrent={chat.id === current}
                  />
                ))}
              </ul>
            )
          }}
        </Loaded>
        <More query={chats} />
      </div>
    </aside>
  )
}

/** `owner`: the name of the person who has opened it, if that is another one. */
type RowProps = { chat: Chat; owner: string | null; search: { list: List; search?: string }; isCurrent: boolean }

function Row({ chat, owner, search, isCurrent }: RowProps) {
  const dot = DOTS[chat.status]
  // The chat of a mission has its title until a person renames it.
  const mission = chat.missionTitle === chat.title ? null : chat.missionTitle
  return (
    <li className="row">
      <Link
        to="/chats/$chatId"
        params={{ chatId: chat.id }}
        search={search}
        aria-current={isCurrent ? 'page' : undefined}
        className={cn('block rounded-md px-2.5 py-1.5 hover:bg-hover', isCurrent && 'bg-hover')}
      >
        <span className="flex items-center gap-2">
          {dot && (
            <span className={cn('mark size-2 shrink-0 rounded-full', dot)}>
              <span className="sr-only">{t.states[chat.status]}</span>
            </span>
          )}
          <span dir="auto" className={cn('min-w-0 flex-1 truncate', isCurrent && 'font-medium')}>
            {chat.title}
          </span>
        </span>
        <span className="flex gap-2 text-soft text-xs">
          <span className="min-w-0 flex-1 truncate">
            <bdi>{mission ?? chat.agentName ?? ''}</bdi>
            {owner !== null && (
              <>
                {' · '}
                <bdi>{owner}</bdi>
              </>
            )}
          </span>
          <Ago at={chat.updatedAt} />
        </span>
      </Link>
    </li>
  )
}
