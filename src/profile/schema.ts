import { z } from 'zod'
import { bool, image, ok, requiredText } from '../lib/fields.ts'

/** Mail notifications of a member (contract-2.md section 5.5). */
export const Notifications = z
  .object({
    approvals: z.boolean().describe('Whether approvals that you can decide are announced'),
    missions: z
      .boolean()
      .describe('Whether failed runs of missions are announced: of yours, for admins of all visible ones'),
  })
  .meta({ id: 'Notifications', description: 'Your mail notifications' })

export const NotificationsChange = z
  .object({
    approvals: bool().optional().describe('Whether approvals that you can decide are announced'),
    missions: bool().optional().describe('Whether failed runs of missions are announced'),
  })
  .meta({ id: 'NotificationsChange', description: 'Changes of mail notifications; absent ones are unchanged' })

export const UpdateProfile = z
  .object({
    name: requiredText(200).optional().describe('Your name'),
    image: image()
      .nullable()
      .optional()
      .describe('Your picture: http(s) address, id of a media, or `data:image/…;base64,`'),
    notifications: NotificationsChange.optional().describe('Mail notifications in this organization'),
  })
  .meta({ examples: [{ name: 'Ada Lovelace' }] })

/** An organization that the caller belongs to. */
export const Membership = z
  .object({
    id: z.string().describe('The organization'),
    name: z.string().describe('Name of the organization'),
    slug: z.string().describe('Its name in addresses'),
    role: z.enum(['owner', 'admin', 'member']).describe('Your role in the organization'),
  })
  .meta({ id: 'ProfileOrganization', description: 'An organization that you belong to' })

/** The caller (contract.md section 7). */
export const Profile = z
  .object({
    id: z.string().describe('Your id'),
    email: z.string().describe('Your e-mail address'),
    name: z.string().describe('Your name'),
    image: z.string().nullable().describe('Address of a picture'),
    notifications: Notifications.describe('Your mail notifications in this organization'),
    organization: Membership.describe('The organization of the token'),
    organizations: z.array(Membership).describe('All your organizations'),
  })
  .meta({ id: 'Profile', description: 'Your profile' })

export const ProfileResponse = ok({ profile: Profile })
