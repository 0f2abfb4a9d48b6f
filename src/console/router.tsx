import { useQuery } from '@tanstack/react-query'
import {
  createRootRoute,
  createRoute,
  createRouter,
  type ErrorComponentProps,
  Link,
  lazyRouteComponent,
  redirect,
  useRouter,
} from '@tanstack/react-router'
import { useEffect } from 'react'
import { BASE, rest } from './api.ts'
import { buttonClass } from './components/button.tsx'
import { Empty, Problem, useTitle } from './components/page.tsx'
import { forgetReplaced } from './components/scroll-place.ts'
import { NewChat } from './features/chat/new-chat.tsx'
import { loadPage, PageGone, PageUnreached, reloadFor } from './lib/pages.ts'
import { everyMs } from './queries.ts'
import { Shell } from './shell.tsx'
import { texts } from './texts.ts'

/** Reads the text parameters of a URL's query, without empty and unknown ones. */
const only =
  <Name extends string>(...names: readonly Name[]) =>
  (search: Record<string, unknown>): { [Key in Name]?: string } =>
    Object.fromEntries(
      names.flatMap((name) =>
        search[name] !== undefined && search[name] !== '' ? [[name, String(search[name])]] : [],
      ),
    ) as { [Key in Name]?: string }

function Failed({ error }: ErrorComponentProps) {
  const { invalidate } = useRouter()
  useTitle(texts.notLoaded)
  const isGone = error instanceof PageGone
  // Not before the page is opened: its file is also loaded when the pointer touches a link.
  useEffect(() => {
    if (error instanceof PageGone) reloadFor(error)
  }, [error])
  // As queries do, it tries again by itself: now and then, and when a connection is back.
  useQuery({
    queryKey: ['page'],
    queryFn: async () => {
      await rest('GET', '/api/health')
      await invalidate()
      return null
    },
    enabled: error instanceof PageUnreached,
    refetchOnReconnect: 'always',
    refetchOnWindowFocus: 'always',
    refetchOnMount: false,
    retry: false,
    ...everyMs(5_000),
  })
  return (
    <div className="mx-auto max-w-2xl p-6">
      <h1 className="sr-only">{texts.notLoaded}</h1>
      <Problem error={error} retry={() => (isGone ? location.reload() : void invalidate())} />
    </div>
  )
}

function NotFound() {
  useTitle(texts.notFound)
  return (
    <div className="mx-auto w-full max-w-2xl p-6">
      <h1 className="sr-only">{texts.notFound}</h1>
      <Empty title={texts.notFound} text={texts.notFoundText}>
        <Link to="/" className={buttonClass('primary')}>
          {texts.toStart}
        </Link>
      </Empty>
    </div>
  )
}

const root = createRootRoute({ component: Shell, errorComponent: Failed, notFoundComponent: NotFound })
const getParentRoute = () => root

const routes = [
  createRoute({
    getParentRoute,
    path: '/',
    validateSearch: only('agent', 'space', 'list', 'search'),
    component: NewChat,
  }),
  createRoute({
    getParentRoute,
    path: '/chats',
    validateSearch: only('list', 'search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/chat/all-chats.tsx')), 'AllChats'),
  }),
  createRoute({
    getParentRoute,
    path: '/chats/$chatId',
    validateSearch: only('list', 'search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/chat/chat-page.tsx')), 'ChatPage'),
  }),
  createRoute({
    getParentRoute,
    path: '/agents',
    validateSearch: only('search', 'show'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/agents/gallery.tsx')), 'Gallery'),
  }),
  createRoute({
    getParentRoute,
    path: '/agents/new',
    component: lazyRouteComponent(() => loadPage(() => import('./features/agents/editor.tsx')), 'NewAgent'),
  }),
  createRoute({
    getParentRoute,
    path: '/agents/$agentId',
    validateSearch: only('tab'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/agents/editor.tsx')), 'EditAgent'),
  }),
  createRoute({
    getParentRoute,
    path: '/runs',
    validateSearch: only('status', 'agentId', 'spaceId', 'since'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/runs/runs.tsx')), 'Runs'),
  }),
  createRoute({
    getParentRoute,
    path: '/runs/$runId',
    validateSearch: only('tab', 'seq'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/runs/run.tsx')), 'Run'),
  }),
  createRoute({
    getParentRoute,
    path: '/tasks',
    validateSearch: only('task', 'assignedTo', 'priority', 'spaceId', 'search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/tasks/board.tsx')), 'Board'),
  }),
  createRoute({
    getParentRoute,
    path: '/missions',
    validateSearch: only('mission', 'search', 'status'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/missions/missions.tsx')), 'Missions'),
  }),
  createRoute({
    getParentRoute,
    path: '/missions/$missionId',
    component: lazyRouteComponent(() => loadPage(() => import('./features/missions/mission.tsx')), 'Mission'),
  }),
  createRoute({
    getParentRoute,
    path: '/approvals',
    validateSearch: only('status'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/approvals/inbox.tsx')), 'Inbox'),
  }),
  createRoute({
    getParentRoute,
    path: '/spaces',
    validateSearch: only('search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/spaces/spaces.tsx')), 'Spaces'),
  }),
  createRoute({
    getParentRoute,
    path: '/spaces/$spaceId',
    validateSearch: only('tab', 'file', 'search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/spaces/space.tsx')), 'Space'),
  }),
  createRoute({
    getParentRoute,
    path: '/skills',
    validateSearch: only('skill', 'search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/skills/skills.tsx')), 'Skills'),
  }),
  createRoute({
    getParentRoute,
    path: '/mcps',
    validateSearch: only('mcp', 'connection', 'code', 'search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/mcps/mcps.tsx')), 'Mcps'),
  }),
  createRoute({
    getParentRoute,
    path: '/usage',
    validateSearch: only('period', 'start', 'end'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/usage/usage.tsx')), 'Usage'),
  }),
  createRoute({
    getParentRoute,
    path: '/settings',
    beforeLoad: () => {
      throw redirect({ to: '/settings/$section', params: { section: 'profile' }, replace: true })
    },
  }),
  createRoute({
    getParentRoute,
    path: '/settings/$section',
    validateSearch: only('action', 'actorId', 'target', 'since', 'until', 'search'),
    component: lazyRouteComponent(() => loadPage(() => import('./features/settings/settings.tsx')), 'Settings'),
  }),
] as const

export const router = createRouter({
  routeTree: root.addChildren(routes),
  basepath: `${BASE}/app`,
  // A page that fails leaves the navigation around it.
  defaultErrorComponent: Failed,
  defaultPreload: 'intent',
  defaultPreloadStaleTime: 0,
  scrollRestoration: false,
  // Plain texts: by default they would be written as JSON.
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch(search) {
    const parameters = Object.entries(search).flatMap(([name, value]) =>
      value === undefined || value === '' ? [] : [[name, String(value)]],
    )
    return parameters.length ? `?${new URLSearchParams(parameters)}` : ''
  },
})

forgetReplaced(router.history)

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
