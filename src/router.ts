import { agents } from './agents/router.ts'
import { approvals } from './approvals/router.ts'
import { audit } from './audit/router.ts'
import { chats } from './chats/router.ts'
import { client } from './client/router.ts'
import { events } from './events/router.ts'
import { executions } from './executions/router.ts'
import { files } from './files/router.ts'
import { keys } from './keys/router.ts'
import { limits } from './limits/router.ts'
import { mcps } from './mcps/router.ts'
import { media } from './media/router.ts'
import { missions } from './missions/router.ts'
import { models } from './models/router.ts'
import { organizations } from './organizations/router.ts'
import { profile } from './profile/router.ts'
import { providers } from './providers/router.ts'
import { secrets } from './secrets/router.ts'
import { sessions } from './sessions/router.ts'
import { skills } from './skills/router.ts'
import { spaces } from './spaces/router.ts'
import { tasks } from './tasks/router.ts'
import { createCallerFactory, router } from './trpc.ts'
import { usage } from './usage/router.ts'
import { webhooks } from './webhooks/router.ts'

export const appRouter = router({
  agents,
  approvals,
  audit,
  chats,
  client,
  events,
  executions,
  files,
  keys,
  limits,
  mcps,
  media,
  missions,
  models,
  organizations,
  profile,
  providers,
  secrets,
  sessions,
  skills,
  spaces,
  tasks,
  usage,
  webhooks,
})

/** Type for typed clients: `createTRPCClient<AppRouter>`. */
export type AppRouter = typeof appRouter

export const createCaller = createCallerFactory(appRouter)
export type Caller = ReturnType<typeof createCaller>
