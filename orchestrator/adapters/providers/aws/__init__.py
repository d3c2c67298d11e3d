"""The provider `aws`: EC2 machines, spot or on demand, with S3 as their object store.

provider    what kedge calls; creation makes a machine (launch, belongings, volumes, schedule), sweep finds it by its
            tags, view says what it looks like
offers      what is for sale (market, catalog, prices, quotas, images), or the dated snapshot
home        the account level that a bootstrap has made (account), with the bucket
record      what this laptop must know of a machine before AWS does
refusals    what AWS's error codes mean, and what follows from each
"""
