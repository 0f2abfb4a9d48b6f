import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
// The module of profiles defines the types of memberships.
import '../profile/graphql.ts'
import { sessions } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('SignInMethod', schema.BrowserSession.shape.method, 'Way of signing in')

const BrowserSession = objectFromZod('BrowserSession', schema.BrowserSession, 'A browser in which you have signed in')
objectFromZod('SessionUser', schema.CurrentSession.shape.user, 'You')
const CurrentSession = objectFromZod('CurrentSession', schema.CurrentSession, 'Your user, and your organization')
const PasswordInput = inputFromZod('SetPasswordInput', schema.ChangePassword, 'A new password')

builder.queryFields((t) => ({
  currentSession: t.field({
    ...procedureExtensions(sessions.current),
    type: CurrentSession,
    resolve: (_, __, { caller }) => caller.sessions.current(),
  }),
  browserSessions: t.field({
    ...procedureExtensions(sessions.list),
    type: [BrowserSession],
    resolve: async (_, __, { caller }) => (await caller.sessions.list()).sessions,
  }),
}))

type Ended = { deletedId: string; message: string }
const EndPayload = builder.objectRef<Ended>('DeleteBrowserSessionPayload').implement({
  description: 'A browser that was signed out',
  fields: (t) => ({
    deletedId: t.exposeID('deletedId', { description: 'The browser session' }),
    message: t.exposeString('message', { description: 'Confirmation for people' }),
  }),
})

const PasswordPayload = builder.objectRef<{ message: string; ended: number }>('SetPasswordPayload').implement({
  description: 'A changed password',
  fields: (t) => ({
    message: t.exposeString('message', { description: 'Confirmation for people' }),
    ended: t.exposeInt('ended', { description: 'Number of other browser sessions that ended' }),
  }),
})

builder.mutationFields((t) => ({
  deleteBrowserSession: t.field({
    ...procedureExtensions(sessions.end),
    type: EndPayload,
    args: argsFromZod(schema.SessionId),
    resolve: async (_, { id }, { caller }) => ({ deletedId: id, ...(await caller.sessions.end({ id })) }),
  }),
  setPassword: t.field({
    ...procedureExtensions(sessions.changePassword),
    type: PasswordPayload,
    args: { input: t.arg({ type: PasswordInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.sessions.changePassword(input),
  }),
}))
