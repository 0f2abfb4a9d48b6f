import { z } from 'zod'
import { image, ok, requiredText } from '../lib/fields.ts'

export const UpdateProfile = z.object({
  name: requiredText(200).optional(),
  image: image().nullable().optional(),
})

/** An organization that the caller belongs to. */
export const Membership = z.object({
  id: z.string().describe('The organization'),
  name: z.string().describe('What it is called'),
  slug: z.string().describe('Its name in addresses'),
  role: z.enum(['owner', 'admin', 'member']).describe('Your role in it'),
})

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
  .meta({ id: 'Profile' })

export const ProfileResponse = ok({ profile: Profile })
