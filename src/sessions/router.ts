import { personProcedure, publicProcedure, restMeta, router } from '../trpc.ts'
import * as accept from './accept.ts'
import * as passwords from './passwords.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const FAILED = { 401: 'Wrong e-mail address or password', 429: 'Too many failures in 15 minutes' }
const INVITATION = { 401: 'The invitation is unknown, used or too old', 429: 'Too many failures in 15 minutes' }

export const sessions = router({
  current: personProcedure()
    .meta(restMeta('GET', '/api/auth/session', 'Get the caller'))
    .output(schema.CurrentSessionResponse)
    .query(async ({ ctx }) => {
      // Extends the cookie in the browser.
      if (ctx.person.session && ctx.cookie) ctx.setCookie(ctx.cookie)
      return service.current(ctx.deps, ctx.person)
    }),

  list: personProcedure('profile:read')
    .meta(restMeta('GET', '/api/auth/sessions', 'List the browsers in which you are signed in'))
    .output(schema.SessionsResponse)
    .query(({ ctx }) => service.list(ctx.deps, ctx.person)),

  end: personProcedure('profile:write')
    .meta(restMeta('DELETE', '/api/auth/sessions/{id}', 'Sign a browser out'))
    .input(schema.SessionId)
    .output(schema.Done)
    .mutation(({ ctx, input }) => service.end(ctx, ctx.person, input)),

  signIn: publicProcedure()
    .meta(restMeta('POST', '/api/auth/login', 'Sign in with a password', FAILED))
    .input(schema.SignIn)
    .output(schema.CurrentSessionResponse)
    .mutation(({ ctx, input }) => service.signIn(ctx, input)),

  signOut: publicProcedure()
    .meta(restMeta('POST', '/api/auth/logout', 'Sign this browser out'))
    .output(schema.Done)
    .mutation(({ ctx }) => service.signOut(ctx)),

  useLink: publicProcedure()
    .meta(restMeta('POST', '/api/auth/link', 'Sign in by a link', { 401: 'The link is unknown, used or too old' }))
    .input(schema.UseLink)
    .output(schema.CurrentSessionResponse)
    .mutation(({ ctx, input }) => passwords.useLink(ctx, input.code)),

  forgotPassword: publicProcedure()
    .meta(restMeta('POST', '/api/auth/forgot', 'Ask for a link to a new password'))
    .input(schema.ForgotPassword)
    .output(schema.Done)
    .mutation(({ ctx, input }) => passwords.forgotPassword(ctx, input)),

  readInvitation: publicProcedure()
    .meta(restMeta('POST', '/api/auth/invitation', 'Get an invitation', INVITATION))
    .input(schema.ReadInvitation)
    .output(schema.InvitationOfferResponse)
    .mutation(({ ctx, input }) => accept.readInvitation(ctx, input.code)),

  acceptInvitation: publicProcedure()
    .meta(restMeta('POST', '/api/auth/accept', 'Accept an invitation', INVITATION))
    .input(schema.AcceptInvitation)
    .output(schema.CurrentSessionResponse)
    .mutation(({ ctx, input }) => accept.acceptInvitation(ctx, input)),

  changePassword: personProcedure('profile:write')
    .meta(restMeta('POST', '/api/auth/password', 'Set or change your password', { 429: FAILED[429] }))
    .input(schema.ChangePassword)
    .output(schema.PasswordChanged)
    .mutation(({ ctx, input }) => passwords.changePassword(ctx, ctx.person, input)),
})
