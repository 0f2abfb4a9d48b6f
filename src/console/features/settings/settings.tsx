import { Link, useParams } from '@tanstack/react-router'
import type { ComponentType } from 'react'
import { Page } from '../../components/page.tsx'
import { cn } from '../../lib/class-names.ts'
import { useIsAdmin, useSession } from '../../session.ts'
import { texts } from '../../texts.ts'
import { Secrets } from '../spaces/secrets.tsx'
import { Audit } from './audit.tsx'
import { Keys } from './keys.tsx'
import { Members } from './members.tsx'
import { Policy } from './policy.tsx'
import { Profile } from './profile.tsx'
import { Providers } from './providers.tsx'

const t = texts.settings

type Name = keyof typeof t.sections

const SECTIONS: Readonly<Record<Name, ComponentType>> = {
  profile: Profile,
  keys: Keys,
  providers: Providers,
  members: Members,
  secrets: OrganizationSecrets,
  policy: Policy,
  audit: Audit,
}

const NAMES = Object.keys(SECTIONS) as Name[]

/** The settings of the person and of the organization. */
export function Settings() {
  const { section } = useParams({ from: '/settings/$section' })
  const current = NAMES.find((name) => name === section) ?? 'profile'
  const Section = SECTIONS[current]
  return (
    <Page title={t.sections[current]}>
      <div className="grid grid-cols-1 gap-6 md:grid-cols-[11rem_minmax(0,1fr)]">
        <nav aria-label={t.title}>
          <ul className="flex gap-1 overflow-x-auto md:flex-col">
            {NAMES.map((name) => (
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
                  {t.sections[name]}
                </Link>
              </li>
            ))}
          </ul>
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
