import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Bot, MessageSquare, Plus } from 'lucide-react'
import { Avatar, Badge } from '../../components/badge.tsx'
import { buttonClass } from '../../components/button.tsx'
import { More } from '../../components/more.tsx'
import { Choice, Empty, Loaded, Page } from '../../components/page.tsx'
import { NoMatch, SearchField, useSearching } from '../../components/search.tsx'
import { cn } from '../../lib/class-names.ts'
import { pages, WATCHED } from '../../queries.ts'
import { agents as t } from '../../texts/agents.ts'
import { texts } from '../../texts.ts'

type Card = {
  id: string
  name: string
  role: string
  description: string | null
  tags: readonly string[]
  visibility?: keyof typeof texts.visibilityNames
  organizationName?: string
}

/** The common part of both lists. */
type Listed = {
  data: { pages: readonly { agents: readonly Card[] }[] } | undefined
  error: unknown
  isPending: boolean
  isPlaceholderData: boolean
  hasNextPage: boolean
  isFetchingNextPage: boolean
  refetch: () => unknown
  fetchNextPage: () => unknown
}

/** One list below the other. */
const both = (first: Listed, second: Listed): Listed => {
  const next = first.hasNextPage ? first : second
  return {
    data: first.data && second.data && { pages: [...first.data.pages, ...second.data.pages] },
    error: first.error ?? second.error,
    isPending: first.isPending || second.isPending,
    isPlaceholderData: first.isPlaceholderData || second.isPlaceholderData,
    hasNextPage: next.hasNextPage,
    isFetchingNextPage: next.isFetchingNextPage,
    refetch: () => Promise.all([first.refetch(), second.refetch()]),
    fetchNextPage: () => next.fetchNextPage(),
  }
}

const SHOWS = { all: texts.all, mine: t.mine, public: t.publicOnes }
type Show = keyof typeof SHOWS

/** All agents that the person can use, as cards. */
export function Gallery() {
  const navigate = useNavigate({ from: '/agents' })
  const { show: wanted = 'all' } = useSearch({ from: '/agents' })
  const show: Show = Object.hasOwn(SHOWS, wanted) ? (wanted as Show) : 'all'
  const { filter, field } = useSearching()
  const own = useInfiniteQuery({
    ...pages('agents.list', { ...filter, owner: 'me' }),
    ...WATCHED,
    enabled: show !== 'public',
  })
  const shared = useInfiniteQuery({
    ...pages('agents.list', filter),
    ...WATCHED,
    enabled: show !== 'public' && show !== 'mine',
  })
  const foreign = useInfiniteQuery({ ...pages('agents.listPublic', filter), enabled: show === 'public' })
  const list: Listed = show === 'public' ? foreign : show === 'mine' ? own : both(own, shared)

  return (
    <Page
      title={t.title}
      actions={
        <Link to="/agents/new" className={buttonClass('primary')}>
          <Plus size={15} aria-hidden />
          {texts.newAgent}
        </Link>
      }
    >
      <div className="mb-4 flex flex-wrap items-center gap-2">
        <SearchField list={t.title} className="max-w-72" {...field} />
        <Choice
          label={t.show}
          options={SHOWS}
          value={show}
          onChange={(name) => void navigate({ search: (before) => ({ ...before, show: name }) })}
        />
      </div>
      <Loaded query={list}>
        {({ pages: read }) => {
          const all = read.flatMap((page) => page.agents)
          // Shared agents of the person are in both lists.
          const cards = [...new Map(all.map((card) => [card.id, card])).values()]
          if (cards.length) return <Cards cards={cards} isForeign={show === 'public'} />
          if (filter.search) return <NoMatch icon={Bot} />
          if (show === 'public') return <Empty icon={Bot} title={t.noPublicTitle} text={t.noPublicText} />
          return (
            <Empty icon={Bot} title={t.emptyTitle} text={t.emptyText}>
              <Link to="/agents/new" className={buttonClass('primary')}>
                {texts.newAgent}
              </Link>
            </Empty>
          )
        }}
      </Loaded>
      <More query={list} />
    </Page>
  )
}

const Cards = ({ cards, isForeign }: { cards: readonly Card[]; isForeign: boolean }) => (
  <ul className="grid grid-cols-1 gap-3 sm:grid-cols-2 xl:grid-cols-3">
    {cards.map(({ id, name, role, description, tags, visibility, organizationName }) => (
      <li key={id} className="relative flex flex-col rounded-xl border border-line p-4 hover:bg-panel">
        <div className="flex items-start gap-3">
          <Avatar name={name} size="large" />
          <div className="min-w-0 flex-1">
            <h2 className="truncate font-semibold text-base" dir="auto">
              {isForeign ? (
                <Link to="/" search={{ agent: id }} className="after:absolute after:inset-0">
                  {name}
                </Link>
              ) : (
                <Link to="/agents/$agentId" params={{ agentId: id }} className="after:absolute after:inset-0">
                  {name}
                </Link>
              )}
            </h2>
            <p className="truncate text-soft" dir="auto">
              {organizationName ? t.of(organizationName) : role}
            </p>
          </div>
        </div>
        <p className="mt-3 line-clamp-3 flex-1 text-soft" dir="auto">
          {description}
        </p>
        <div className="mt-3 flex items-center gap-1.5">
          <div className="flex min-w-0 flex-1 gap-1.5 overflow-hidden">
            {visibility && visibility !== 'organization' && <Badge>{texts.visibilityNames[visibility]}</Badge>}
            {tags.slice(0, 3).map((tag) => (
              <Badge key={tag}>
                <bdi>{tag}</bdi>
              </Badge>
            ))}
          </div>
          <Link to="/" search={{ agent: id }} className={cn(buttonClass(), 'relative')}>
            <MessageSquare size={14} aria-hidden />
            {t.talk}
            <span className="sr-only">: {name}</span>
          </Link>
        </div>
      </li>
    ))}
  </ul>
)
