import { z } from 'zod'
import { MAX_PASSWORD } from '../auth/passwords.ts'
import { ok, requiredText, timestamp } from '../lib/fields.ts'
import { Membership } from '../profile/schema.ts'

const email = requiredText(254).describe('E-mail address')
const password = requiredText(MAX_PASSWORD).describe('Password')

/** POST /api/auth/login (contract-2.md section 3.2). */
export const SignIn = z
  .object({ email, password })
  .meta({ examples: [{ email: 'ada@example.com', password: 'a long sentence of your own' }] })

/** POST /api/auth/link (contract-2.md section 3.4). */
export const UseLink = z
  .object({ code: requiredText(200).describe('Code behind the # of the link') })
  .meta({ examples: [{ code: '7iXw2Jq0cVb9LrT4nYk1Zs8Dm3Ff6Hg5Pp0Aa2Ee4Uu' }] })

/** POST /api/auth/forgot (contract-2.md section 3.2). */
export const ForgotPassword = z.object({ email }).meta({ examples: [{ email: 'ada@example.com' }] })

const code = requiredText(200).describe('Code behind the # of the link')

/** POST /api/auth/invitation (contract-2.md section 3.5). */
export const ReadInvitation = z
  .object({ code })
  .meta({ examples: [{ code: '7iXw2Jq0cVb9LrT4nYk1Zs8Dm3Ff6Hg5Pp0Aa2Ee4Uu' }] })

/** POST /api/auth/accept (contract-2.md section 3.5). */
export const AcceptInvitation = z
  .object({
    code,
    name: z.string().max(200).nullish().describe('Your name. Required unless the invited address has an account'),
    password: z.string().max(MAX_PASSWORD).nullish().describe('Your password: at least 12 characters. Default: none'),
  })
  .meta({ examples: [{ code: '7iXw2Jq0cVb9LrT4nYk1Zs8Dm3Ff6Hg5Pp0Aa2Ee4Uu', name: 'Ada Lovelace' }] })

/** The part of an invitation that the holder of its code sees. */
export const InvitationOffer = z
  .object({
    organizationName: z.string().describe('Name of the organization'),
    email: z.string().describe('The invited address'),
    role: z.enum(['owner', 'admin', 'member']).describe('Role of the new member'),
    hasAccount: z.boolean().describe('Whether the address has an account. Its user must sign in first'),
  })
  .meta({ id: 'InvitationOffer', description: 'Content of an invitation' })

/** POST /api/auth/password (contract-2.md section 3.2). */
export const ChangePassword = z
  .object({
    current: z
      .string()
      .max(MAX_PASSWORD)
      .nullish()
      .describe('Your current password. Not required if none is set and you have just signed in by a link or provider'),
    new: password.describe('Your new password: at least 12 characters, and none of the common ones'),
  })
  .meta({ examples: [{ current: 'a long sentence of your own', new: 'another long sentence of your own' }] })

/** DELETE /api/auth/sessions/{id} (contract-2.md section 3.2). */
export const SessionId = z.object({ id: z.string().describe('The browser session') })

/** A browser in which the caller has signed in. */
export const BrowserSession = z
  .object({
    id: z.string().describe('The browser session'),
    method: z.enum(['password', 'oidc', 'link']).describe('Way of the sign-in'),
    current: z.boolean().describe('Whether it is the session of this request'),
    userAgent: z.string().nullable().describe('User agent of the browser'),
    address: z.string().nullable().describe('The network address that signed in'),
    createdAt: timestamp.describe('Time of the sign-in'),
    lastSeenAt: timestamp.describe('Time of its last use, to five minutes'),
    expiresAt: timestamp.describe('Time at which it expires unless it is used before'),
  })
  .meta({ id: 'BrowserSession', description: 'A browser in which you are signed in' })

const SessionUser = z
  .object({
    id: z.string().describe('Your id'),
    email: z.string().describe('Your e-mail address'),
    name: z.string().describe('Your name'),
    image: z.string().nullable().describe('Address of a picture'),
    emailVerified: z.boolean().describe('Whether the address is verified'),
    hasPassword: z.boolean().describe('Whether you can sign in with a password'),
  })
  .meta({ id: 'SessionUser', description: 'You' })

/** GET /api/auth/session: the caller and the organization (contract-2.md section 3.2). */
export const CurrentSession = z.object({
  user: SessionUser.describe('You'),
  organization: Membership.nullable().describe(
    'Organization of the request; null if you belong to several and name none',
  ),
  organizations: z.array(Membership).describe('All organizations that you belong to'),
  role: Membership.shape.role.nullable().describe('Your role in the organization'),
  scopes: z.array(z.string()).describe('Scopes of the credential, within the role'),
  session: BrowserSession.nullable().describe('The browser session; null for a request with a token'),
})

export const CurrentSessionResponse = ok(CurrentSession.shape)
export const SessionsResponse = ok({ sessions: z.array(BrowserSession).describe('The newest first, at most 200') })
const message = z.string().describe('Confirmation for people')

export const Done = ok({ message })
export const PasswordChanged = ok({
  message,
  ended: z.int().describe('Number of other browser sessions that ended'),
})
export const InvitationOfferResponse = ok({ invitation: InvitationOffer.describe('Content of the invitation') })
