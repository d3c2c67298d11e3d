"""Images: public ones, and the account's own snapshots."""

from __future__ import annotations

from tests.cloudbox.digitalocean.account.call import NO_CONTENT, ApiError, not_found
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Image
from tests.cloudbox.digitalocean.account.views import show_image
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")


@routes.on("GET", "/images", "image:read")
def list_images(cloud: Cloud, call: Call) -> Answer:
    """List images: all that can be used, or by type, only the account's own, or by tag."""
    images = list(cloud.account.images.values())
    if kind := call.query.get("type"):
        images = [image for image in images if image.public and image.public.kind == kind]
    if call.query.get("private", "").lower() == "true":
        images = [image for image in images if image.public is None]
    if tag := call.query.get("tag_name"):
        images = [image for image in images if tag in image.tags]
    return page(call, "images", [show_image(image) for image in images])


@routes.on("GET", "/images/{image_id}", "image:read")
def get_image(cloud: Cloud, call: Call) -> Answer:
    """Show an image by its number or its slug."""
    return Answer(body={"image": show_image(_find(cloud, call))})


@routes.on("PUT", "/images/{image_id}", "image:update")
def rename_image(cloud: Cloud, call: Call) -> Answer:
    """Give an image of one's own another name."""
    image = _own(cloud, call)
    image.name = str(call.body.get("name", image.name))
    return Answer(body={"image": show_image(image)})


@routes.on("DELETE", "/images/{image_id}", "image:delete")
def delete_image(cloud: Cloud, call: Call) -> Answer:
    """Delete an image of one's own."""
    del cloud.account.images[_own(cloud, call).id]
    return NO_CONTENT


def _find(cloud: Cloud, call: Call) -> Image:
    wanted = call.params["image_id"]
    for image in cloud.account.images.values():
        if wanted == str(image.id) or (image.public and wanted == image.public.slug):
            return image
    raise not_found()


def _own(cloud: Cloud, call: Call) -> Image:
    image = _find(cloud, call)
    if image.public:
        raise ApiError(403, "forbidden", "You are not authorized to perform this operation")
    return image
