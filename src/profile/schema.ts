import { z } from 'zod'
import { image, ok, requiredText } from '../lib/fields.ts'

export const UpdateProfile = z
  .object({
    name: requiredText(200).optional().describe('Your name'),
    image: image()
      .nullable()
      .optional()
      .describe('Your picture: http(s) address, id of a media, or `data:image/…;base64,`'),
  })
  .meta({ examples: [{ name: 'Ada Lovelace' }] })

/** An organization that the caller belongs to. */
export const Membership = z
  .object({
    id: z.string().describe('The organization'),
    name: z.string().describe('What it is called'),
    slug: z.string().describe('Its name in addresses'),
    role: z.enum(['owner', 'admin', 'member']).describe('Your role in it'),
  })
  .meta({ id: 'ProfileOrganization', description: 'An organization that you belong to' })

/** The caller (contract.md section 7). */
export const Profile = z
  .object({
    id: z.string().describe('Your id'),
    email: z.string().describe('Your e-mail address'),
    name: z.string().describe('Your name'),
    image: z.string().nullable().describe('Address of a picture'),
    organization: Membership.describe('The one that the token is of'),
    organizations: z.array(Membership).describe('All of them'),
  })
  .meta({ id: 'Profile', description: 'Your profile' })

export const ProfileResponse = ok({ profile: Profile })
