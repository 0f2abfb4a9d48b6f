import { Link, Outlet, useNavigate, useRouterState } from '@tanstack/react-router'
import { ChevronsUpDown, LogOut, Menu as MenuIcon, Search, UserRound } from 'lucide-react'
import { type ComponentType, useCallback, useEffect, useRef, useState } from 'react'
import { describeFailure } from './api.ts'
import { Avatar } from './components/badge.tsx'
import { IconButton } from './components/button.tsx'
import { Dialog } from './components/dialog.tsx'
import { useGuardOfAll } from './components/guard.ts'
import { Menu, MenuItem, MenuLabel, MenuLine } from './components/menu.tsx'
import { Reconnecting } from './components/page.tsx'
import { WithSecret } from './components/secret.tsx'
import { Toasts, toast } from './components/toast.tsx'
import { useBadge } from './features/approvals/badge.ts'
import { useNotifications } from './features/approvals/notify.ts'
import { useChanges } from './follow.ts'
import { cn } from './lib/class-names.ts'
import { loadPage } from './lib/pages.ts'
import { GROUPS, SETTINGS } from './navigation.ts'
import { useAction } from './queries.ts'
import { ServerState } from './server-state.tsx'
import { signOut, switchOrganization, useSession } from './session.ts'
import { texts } from './texts.ts'
import { applyTheme, setTheme, THEMES, theme } from './theme.ts'

const isMac = /Mac|iP(hone|ad)/.test(navigator.platform)

/**
 * Returns whether the keys are those of the palette. On a Mac, Control and K delete the rest of a line. A keyboard of
 * other letters, such as Cyrillic ones, has no K: there the key at its place counts.
 */
const isShortcut = ({ key, code, metaKey, ctrlKey, shiftKey, altKey }: KeyboardEvent) =>
  (isMac ? metaKey && !ctrlKey : ctrlKey && !metaKey) &&
  !shiftKey &&
  !altKey &&
  (/^[a-z]$/i.test(key) ? key.toLowerCase() === 'k' : code === 'KeyK')

/** The frame of every page: navigation, organization, user, palette. */
export function Shell() {
  const [drawer, setDrawer] = useState(false)
  const [Palette, setPalette] = useState<ComponentType<{ onClose: () => void }> | null>(null)
  const openPalette = useCallback(() => {
    loadPage(() => import('./palette.tsx')).then(
      ({ default: loaded }) => setPalette(() => loaded),
      (error) => toast(describeFailure(error), 'bad'),
    )
  }, [])
  const path = useRouterState({ select: ({ location }) => location.pathname })
  const href = useRouterState({ select: ({ resolvedLocation }) => resolvedLocation?.href })
  const isConnected = useChanges('approvals.changes', 'approvals.')
  useNotifications()
  useGuardOfAll()
  useEffect(applyTheme, [])

  // biome-ignore lint/correctness/useExhaustiveDependencies: another page closes the drawer
  useEffect(() => setDrawer(false), [path])

  // The link that led to this page may be gone, and the focus with it.
  const before = useRef(href)
  useEffect(() => {
    if (before.current && before.current !== href && document.activeElement === document.body)
      document.getElementById('main')?.focus({ preventScroll: true })
    before.current = href
  }, [href])

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!isShortcut(event)) return
      event.preventDefault()
      if (Palette) setPalette(null)
      else openPalette()
    }
    window.addEventListener('keydown', onKey)
    return () => window.removeEventListener('keydown', onKey)
  }, [Palette, openPalette])

  const navigation = <Navigation path={path} onSearch={openPalette} />
  return (
    <div className="flex h-dvh flex-col md:flex-row print:block print:h-auto">
      <a
        href="#main"
        className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:m-2 focus:rounded focus:bg-raised focus:p-2"
      >
        {texts.skip}
      </a>
      <header
        className={cn(
          'flex items-center gap-2 border-line border-b bg-panel px-2 py-1.5 md:hidden print:hidden',
          // A chat needs the height, and has a link to the chats.
          path.startsWith('/chats/') && '[@media(max-height:18rem)]:hidden',
        )}
      >
        <IconButton label={texts.nav.open} icon={MenuIcon} onClick={() => setDrawer(true)} />
        <span className="flex-1 font-semibold">Muster</span>
        <IconButton label={texts.palette.open} icon={Search} onClick={openPalette} />
      </header>
      <div className="hidden w-56 shrink-0 border-line border-r bg-panel md:block print:hidden">{navigation}</div>
      <Dialog as="side" open={drawer} onClose={() => setDrawer(false)} title={texts.nav.title}>
        {navigation}
      </Dialog>
      <WithSecret>
        <main
          id="main"
          data-shown={href}
          className="flex min-h-0 min-w-0 flex-1 flex-col *:last:min-h-0 *:last:flex-1"
          tabIndex={-1}
        >
          {/* A chat says so itself. */}
          {!isConnected && !path.startsWith('/chats/') && <Reconnecting />}
          <ServerState />
          <Outlet />
        </main>
      </WithSecret>
      {Palette && <Palette onClose={() => setPalette(null)} />}
      <Toasts />
      <p id="title-announcer" role="status" className="sr-only" />
      <p id="announcer" role="status" className="sr-only" />
    </div>
  )
}

const ROW = 'flex items-center gap-2.5 rounded-md px-2.5 py-1.5 hover:bg-hover'

function Navigation({ path, onSearch }: { path: string; onSearch: () => void }) {
  const waiting = useBadge()
  const isAt = (to: string, also?: string) =>
    to === '/' ? path === '/' || path.startsWith(also ?? '//') : path === to || path.startsWith(`${to}/`)
  return (
    <nav aria-label={texts.nav.title} className="flex h-full flex-col overflow-y-auto p-2">
      <OrganizationSwitcher />
      <button type="button" onClick={onSearch} className={cn(ROW, 'mt-1 mb-2 text-soft')}>
        <Search size={16} aria-hidden />
        <span className="flex-1 text-left">{texts.palette.open}</span>
        <kbd className="font-sans text-xs">{isMac ? '⌘K' : 'Ctrl K'}</kbd>
      </button>
      {GROUPS.map((group) => (
        <ul key={group[0].to} className="mb-3 space-y-0.5">
          {group.map(({ to, label, icon: Icon, ...rest }) => {
            const isCurrent = isAt(to, 'also' in rest ? rest.also : undefined)
            return (
              <li key={to}>
                <Link
                  to={to}
                  aria-current={isCurrent ? 'page' : undefined}
                  className={cn(ROW, isCurrent ? 'bg-hover font-medium' : 'text-soft')}
                >
                  <Icon size={16} aria-hidden className={cn('shrink-0', isCurrent && 'text-accent')} />
                  <span className="flex-1">{label}</span>
                  {to === '/approvals' && waiting > 0 && (
                    <span className="rounded-full bg-warn-tint px-1.5 font-medium text-warn text-xs">
                      <span>{waiting}</span>
                      <span className="sr-only"> {texts.approvals.wait}</span>
                    </span>
                  )}
                </Link>
              </li>
            )
          })}
        </ul>
      ))}
      <div className="mt-auto space-y-0.5 pt-2">
        <Link
          to={SETTINGS.to}
          params={SETTINGS.params}
          aria-current={path.startsWith('/settings') ? 'page' : undefined}
          className={cn(ROW, path.startsWith('/settings') ? 'bg-hover font-medium' : 'text-soft')}
        >
          <SETTINGS.icon size={16} aria-hidden />
          {SETTINGS.label}
        </Link>
        <UserMenu />
      </div>
    </nav>
  )
}

function OrganizationSwitcher() {
  const { organization, organizations } = useSession()
  const name = organization?.name ?? 'Muster'
  const inner = (
    <>
      <Avatar name={name} />
      <bdi className="min-w-0 flex-1 truncate text-left font-semibold">{name}</bdi>
    </>
  )
  if (organizations.length < 2) return <div className="flex items-center gap-2.5 px-1.5 py-1.5">{inner}</div>
  return (
    <Menu
      align="start"
      trigger={
        <button
          type="button"
          className="flex items-center gap-2.5 rounded-md px-1.5 py-1.5 hover:bg-hover"
          aria-label={texts.organization(name)}
        >
          {inner}
          <ChevronsUpDown size={14} aria-hidden className="text-soft" />
        </button>
      }
    >
      <MenuLabel>{texts.organizations}</MenuLabel>
      {organizations.map(({ id, name: each }) => (
        <MenuItem key={id} checked={id === organization?.id} onSelect={() => switchOrganization(id)}>
          <bdi>{each}</bdi>
        </MenuItem>
      ))}
    </Menu>
  )
}

function UserMenu() {
  const { user } = useSession()
  const navigate = useNavigate()
  const [chosen, setChosen] = useState(theme)
  const leave = useAction(signOut)
  return (
    <Menu
      align="start"
      trigger={
        <button type="button" className={cn(ROW, 'w-full')} aria-label={texts.user(user.name)}>
          <Avatar name={user.name} />
          <bdi className="min-w-0 flex-1 truncate text-left">{user.name}</bdi>
        </button>
      }
    >
      <MenuLabel>{user.email}</MenuLabel>
      <MenuItem
        icon={UserRound}
        onSelect={() => void navigate({ to: '/settings/$section', params: { section: 'profile' } })}
      >
        {texts.sections.profile}
      </MenuItem>
      <MenuLine />
      <MenuLabel>{texts.theme}</MenuLabel>
      {THEMES.map((each) => (
        <MenuItem
          key={each}
          checked={each === chosen}
          onSelect={() => {
            setTheme(each)
            setChosen(each)
          }}
        >
          {texts.themes[each]}
        </MenuItem>
      ))}
      <MenuLine />
      <MenuItem icon={LogOut} onSelect={() => leave.mutate(undefined)}>
        {texts.signOut}
      </MenuItem>
    </Menu>
  )
}
