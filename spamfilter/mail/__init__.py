"""The bytes of a mail: read into a Message, and written with our header fields; mailboxes on disk.

Only `mailboxes` reads files, all else is pure. Whatever a mail contains, nothing but `attached_mails` raises.
Imports: errors and system. Start with message, whose `parse` reads the header, the MIME parts and the text.
"""
