import { Link, useParams } from '@tanstack/react-router'
import { type ComponentType, useEffect, useRef } from 'react'
import { Page } from '../../components/page.tsx'
import { cn } from '../../lib/class-names.ts'
import { OF_ADMINS } from '../../navigation.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { settings as t } from '../../texts/settings.ts'
import { texts } from '../../texts.ts'
import { Secrets } from '../spaces/secrets.tsx'
import { Audit } from './audit.tsx'
import { Keys } from './keys.tsx'
import { Limits } from './limits.tsx'
import { Members } from './members.tsx'
import { OrganizationSettings } from './organization.tsx'
import { Policy } from './policy.tsx'
import { Profile } from './profile.tsx'
import { Providers } from './providers.tsx'
import { ServiceAccounts } from './service-accounts.tsx'
import { Webhooks } from './webhooks.tsx'

type Name = keyof typeof texts.sections

const SECTIONS: Readonly<Record<Name, ComponentType>> = {
  profile: Profile,
  keys: Keys,
  limits: Limits,
  organization: OrganizationSettings,
  members: Members,
  'service-accounts': ServiceAccounts,
  providers: Providers,
  secrets: OrganizationSecrets,
  webhooks: Webhooks,
  policy: Policy,
  audit: Audit,
}

const NAMES = Object.keys(SECTIONS) as Name[]
const OF_PERSON: readonly Name[] = ['profile', 'keys', 'limits']

type Group = keyof typeof t.groups

const GROUPS: Readonly<Record<Group, readonly Name[]>> = {
  person: OF_PERSON,
  organization: NAMES.filter((name) => !OF_PERSON.includes(name)),
}

/** The settings of the person and of the organization. */
export function Settings() {
  const { section } = useParams({ from: '/settings/$section' })
  const isAdmin = useIsAdmin()
  const current = NAMES.find((name) => name === section) ?? 'profile'
  const Section = SECTIONS[current]
  const menu = useRef<HTMLElement>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: the current one comes into view
  useEffect(() => {
    menu.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' })
  }, [current])
  return (
    <Page title={texts.sections[current]}>
      <div className="grid grid-cols-1 gap-6 md:grid-cols-[11rem_minmax(0,1fr)] print:block">
        <nav ref={menu} aria-label={t.title} className="print:hidden">
          <div className="flex gap-1 overflow-x-auto md:flex-col">
            {Object.entries(GROUPS).map(([group, names]) => (
              <ul key={group} className="flex shrink-0 gap-1 md:mb-3 md:flex-col" aria-label={t.groups[group as Group]}>
                <li aria-hidden className="hidden px-2.5 py-1 text-soft text-xs md:block">
                  {t.groups[group as Group]}
                </li>
                {names
                  .filter((name) => isAdmin || !OF_ADMINS.has(name) || name === current)
                  .map((name) => (
                    <li key={name}>
                      <Link
                        to="/settings/$section"
                        params={{ section: name }}
                        aria-current={name === current ? 'page' : undefined}
                        className={cn(
                          'block whitespace-nowrap rounded-md px-2.5 py-1.5 hover:bg-hover',
                          name === current ? 'bg-hover font-medium' : 'text-soft',
                        )}
                      >
                        {texts.sections[name]}
                      </Link>
                    </li>
                  ))}
              </ul>
            ))}
          </div>
        </nav>
        <div className="min-w-0">
          <Section />
        </div>
      </div>
    </Page>
  )
}

function OrganizationSecrets() {
  const { organization } = useSession()
  const isAdmin = useIsAdmin()
  if (!isAdmin || !organization) return <p className="text-soft">{t.onlyAdmins}</p>
  return (
    <>
      <p className="mb-3 text-soft">{t.secrets.help}</p>
      <Secrets place={{ orgId: organization.id }} />
    </>
  )
}
