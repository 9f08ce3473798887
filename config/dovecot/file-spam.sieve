# On delivery: what the relay has tagged goes into Junk.
require ["fileinto", "mailbox"];

if header :is "X-Spam-Flag" "YES" {
    fileinto :create "Junk";
}
